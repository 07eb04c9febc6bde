"""How a batch gets to the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lucid_yolo.data.batch import Batch
from lucid_yolo.perf.capture.values import flatten

Transfer = Callable[[Batch, torch.device], Batch]
"""Copies a batch to a device."""


def copy_in_order(batch: Batch, device: torch.device) -> Batch:
    """Copy on the current stream: the device does it when the step before is over, the host does not wait."""
    return batch.to(device, non_blocking=True)


@dataclass
class _Slot:
    """Memory of one batch.

    Attributes:
        places: of its tensors; none before the first batch.
        read: recorded when the step that reads them has been launched.
    """

    places: list[Tensor] = field(default_factory=list)
    read: torch.cuda.Event | None = None

    def fits(self, tensors: list[Tensor]) -> bool:
        """Whether tensors have the form of the places."""
        forms = [[(t.shape, t.dtype) for t in group] for group in (self.places, tensors)]
        return forms[0] == forms[1]


class CopyBeside:
    """Copies a batch on a stream of its own while the device still computes the step before.

    Two batches have memory: the one that is computed and the one that arrives. A batch is good until the next but one.

    Args:
        device: a CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._slots = (_Slot(), _Slot())
        self._turn = 0

    def __call__(self, batch: Batch, device: torch.device) -> Batch:
        """Launch the copy; the current stream waits for it."""
        current = torch.cuda.current_stream(device)
        self._slots[self._turn].read = current.record_event()  # all that reads the batch before is launched by now
        self._turn = 1 - self._turn
        slot = self._slots[self._turn]
        tensors, rebuild = flatten((batch.images, batch.targets, batch.gains))
        if not slot.fits(tensors):
            slot.places = [torch.empty_like(tensor, device=device) for tensor in tensors]
            slot.read = current.record_event()  # what had that memory before
        assert slot.read is not None
        self._stream.wait_event(slot.read)
        with torch.cuda.stream(self._stream):
            for place, tensor in zip(slot.places, tensors, strict=True):
                place.copy_(tensor, non_blocking=True)
        current.wait_stream(self._stream)
        images, targets, gains = rebuild(slot.places)
        return Batch(images=images, targets=targets, gains=gains, indices=batch.indices)
