"""Who changes colours on the device: the fused kernel where its toolchain works, torch otherwise."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from lucid_yolo.config.errors import RunError
from lucid_yolo.config.schema import OnUnmet
from lucid_yolo.ops import colour_torch
from lucid_yolo.perf.warning import warn_user


class DeviceColour(Protocol):
    """Applies colour gains and scales to 0 .. 1; see `lucid_yolo.ops.colour_torch.colour_and_scale`."""

    def __call__(self, images: Tensor, gains: Tensor, *, dtype: torch.dtype) -> Tensor:
        """Map (B, 3, S, S) uint8 and (B, 3) float32 to (B, 3, S, S) in channels_last memory."""
        ...


class FusedColour:
    """The fused kernel. Its first call compiles it; where that fails, torch does the work from then on.

    Args:
        on_unmet: whether such a failure is an error instead.

    Attributes:
        failure: why torch does the work; empty where the kernel does.
    """

    def __init__(self, on_unmet: OnUnmet) -> None:
        self._on_unmet = on_unmet
        self._work: DeviceColour | None = None
        self.failure = ""

    def __call__(self, images: Tensor, gains: Tensor, *, dtype: torch.dtype) -> Tensor:
        """Apply gains and scale; see `DeviceColour`.

        Raises:
            RunError: the first call failed, and the run asks for an error then.
        """
        if self._work is None:
            return self._first(images, gains, dtype)
        return self._work(images, gains, dtype=dtype)

    def _first(self, images: Tensor, gains: Tensor, dtype: torch.dtype) -> Tensor:
        try:
            from lucid_yolo.perf.kernels.colour import colour_and_scale  # noqa: PLC0415 - Triton is not everywhere

            scaled = colour_and_scale(images, gains, dtype=dtype)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a toolchain of several programs can meet
            self._give_up(f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0]}")
            self._work = colour_torch.colour_and_scale
            return self._work(images, gains, dtype=dtype)
        self._work = colour_and_scale
        return scaled

    def _give_up(self, cause: str) -> None:
        self.failure = cause
        message = f"the fused colour kernel could not be compiled or started ({cause})"
        if self._on_unmet is OnUnmet.RAISE:
            raise RunError(f"hsv=device: {message}; hsv=device_native does without it")
        warn_user(f"hsv.fused: {message} -> torch changes the colours on the device, as with hsv=device_native")
