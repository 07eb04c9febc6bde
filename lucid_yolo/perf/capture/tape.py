"""CUDA graphs: the only module that names them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lucid_yolo.config.collector import collector_stopped


@dataclass(frozen=True, slots=True)
class Track:
    """One recorded function.

    Attributes:
        outputs: its tensors; every replay writes them anew.
        replay: does what the function did, with what is in memory now.
    """

    outputs: Sequence[Tensor]
    replay: Callable[[], None]


class Tape(Protocol):
    """Records functions that read and write fixed memory."""

    def rehearse(self, function: Callable[[], object], times: int) -> None:
        """Run a function a few times apart from the step: libraries choose and load what they need."""
        ...

    def record(self, function: Callable[[], Sequence[Tensor]]) -> Track:
        """Record a function; nothing has been computed when this returns."""
        ...

    def reserved(self) -> int:
        """Bytes that are reserved on the device."""
        ...

    def stream(self) -> int:
        """Identity of the stream that would replay now."""
        ...

    def renew(self) -> None:
        """Give what is recorded from now on memory of its own."""
        ...

    def holds_recordings(self) -> bool:
        """Whether something was recorded in that memory before."""
        ...


class CudaTape:
    """Records CUDA graphs that share one pool of memory.

    What a graph has freed, a later one of the pool may use: a replay of the former destroys what is there. So graphs
    are replayed in the order in which they were recorded, or what must outlast a replay of an earlier one lies
    elsewhere. A graph that is recorded later, in the place of another one, needs `renew`.

    Args:
        device: a CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._index = torch.cuda.current_device() if device.index is None else device.index
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.renew()

    def rehearse(self, function: Callable[[], object], times: int) -> None:
        """Run on the stream that records."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for _ in range(times):
                function()
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
        torch.cuda.synchronize(self._device)

    def record(self, function: Callable[[], Sequence[Tensor]]) -> Track:
        """Record one graph."""
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        try:
            # Other threads (the one that pins memory) may go on calling CUDA meanwhile.
            with (
                collector_stopped(),  # an older graph among garbage, destroyed now, would break this one
                torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"),
            ):
                outputs = function()
        except BaseException:
            torch.cuda.set_stream(current)  # a capture that cannot be ended leaves its own behind
            # The generator would go on waiting for the end of the graph, and refuse to draw.
            generator = torch.cuda.default_generators[self._device.index or 0]
            generator.graphsafe_set_state(generator.clone_state())
            raise
        self._holds_recordings = True
        return Track(outputs, graph.replay)

    def reserved(self) -> int:
        """Bytes of the caching allocator."""
        return torch.cuda.memory_reserved(self._device)

    def stream(self) -> int:
        """Handle of the current stream."""
        # Asked in every step, several times; torch.cuda.current_stream makes an object to ask.
        handle: int = torch._C._cuda_getCurrentRawStream(self._index)
        return handle

    def renew(self) -> None:
        """Begin a new pool."""
        self._pool = torch.cuda.graph_pool_handle()
        self._holds_recordings = False

    def holds_recordings(self) -> bool:
        """Whether the pool has a graph."""
        return self._holds_recordings
