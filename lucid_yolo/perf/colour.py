"""Who changes colours on the device: the fused kernel where its toolchain works, torch otherwise."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from lucid_yolo.config.schema import OnUnmet
from lucid_yolo.ops import colour_torch
from lucid_yolo.perf.first_call import FirstCall, Words

WORDS = Words(
    what="the fused colour kernel",
    row="hsv.fused",
    option="hsv=device",
    without="hsv=device_native",
    instead="torch changes the colours on the device",
)


class DeviceColour(Protocol):
    """Applies colour gains and scales to 0 .. 1; see `lucid_yolo.ops.colour_torch.colour_and_scale`."""

    def __call__(self, images: Tensor, gains: Tensor, *, dtype: torch.dtype) -> Tensor:
        """Map (B, 3, S, S) uint8 and (B, 3) float32 to (B, 3, S, S) in channels_last memory."""
        ...


class FusedColour:
    """The fused kernel. Its first call compiles it; where that fails, torch does the work from then on.

    Args:
        on_unmet: whether such a failure is an error instead.
    """

    def __init__(self, on_unmet: OnUnmet) -> None:
        self._first_call = FirstCall(WORDS, on_unmet)
        self._work: DeviceColour | None = None

    @property
    def failure(self) -> str:
        """Why torch does the work; empty where the kernel does."""
        return self._first_call.failure

    def __call__(self, images: Tensor, gains: Tensor, *, dtype: torch.dtype) -> Tensor:
        """Apply gains and scale; see `DeviceColour`.

        Raises:
            RunError: the first call failed, and the run asks for an error then.
        """
        if self._work is None:
            return self._first(images, gains, dtype)
        return self._work(images, gains, dtype=dtype)

    def _first(self, images: Tensor, gains: Tensor, dtype: torch.dtype) -> Tensor:
        def compiled() -> tuple[DeviceColour, Tensor]:
            from lucid_yolo.perf.kernels.colour import colour_and_scale  # noqa: PLC0415 - Triton is not everywhere

            return colour_and_scale, colour_and_scale(images, gains, dtype=dtype)

        found = self._first_call.attempt(compiled)
        if found is None:
            self._work = colour_torch.colour_and_scale
            return self._work(images, gains, dtype=dtype)
        self._work, scaled = found
        return scaled
