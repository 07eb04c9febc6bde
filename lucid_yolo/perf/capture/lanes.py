"""Stems side by side on CUDA streams, for a step that is recorded: a graph keeps what can run at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lucid_yolo.nn.lanes import IN_TURN
from lucid_yolo.perf.capture.values import itself


class StreamLanes:
    """Runs functions on streams of their own, each from the last fork on.

    Backward passes run on the streams of their forward passes, and autograd has them wait for each other. The numbers
    are those of one stream: the same kernels on the same operands.

    Args:
        device: a CUDA device.
        count: streams; functions take them in turn.
    """

    def __init__(self, device: torch.device, count: int) -> None:
        self._device = device
        self._streams = [torch.cuda.Stream(device) for _ in range(count)]  # type: ignore[no-untyped-call]
        self._next = 0
        self._forked: torch.cuda.Event | None = None

    def fork(self) -> None:
        """Remember what has been computed so far on the current stream."""
        self._forked = torch.cuda.current_stream(self._device).record_event()
        self._next = 0

    def run(self, functions: Sequence[Callable[[Tensor], Tensor]], inputs: Sequence[Tensor]) -> list[Tensor]:
        """Call each on the next stream; the current one waits for all of them."""
        assert self._forked is not None, "nothing was forked"
        current, outputs = torch.cuda.current_stream(self._device), []
        for function, x in zip(functions, inputs, strict=True):
            stream = self._streams[self._next % len(self._streams)]
            self._next += 1
            stream.wait_event(self._forked)
            with torch.cuda.stream(stream):
                output = function(x)
            current.wait_stream(stream)
            output.record_stream(current)
            outputs.append(output)
        return outputs

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as one after the other: streams belong to one fit."""
        return itself, (IN_TURN,)
