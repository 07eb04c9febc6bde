"""Who takes maxima over windows in a training step: the fused kernels where a map suits them, torch otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lucid_yolo.nn.max_pool import STOCK, Pools
from lucid_yolo.perf.capture.values import itself
from lucid_yolo.perf.first_call import TYPES, FirstCall
from lucid_yolo.perf.kernels.rows import row_pitch
from lucid_yolo.perf.plan import Scalar
from lucid_yolo.perf.tally import Tally

WINDOW = 5
"""Side of the windows that the kernels are compiled for."""


class FusedPools:
    """Pools with the fused kernels; the first map of each type compiles them.

    Args:
        device: of the step; maps elsewhere are torch's.
        first_call: of the kernels; where it fails, torch pools from then on.
    """

    def __init__(self, device: torch.device, first_call: FirstCall) -> None:
        self._device = device
        self._first_call = first_call
        self._kernels: dict[torch.dtype, Pools] = {}
        self._tally = Tally()

    def pool(self, x: Tensor, window: int) -> Tensor:
        """Pool; see `lucid_yolo.nn.max_pool.Pools`."""
        return self._choose(x, window).pool(x, window)

    def outcome(self) -> Mapping[str, Scalar]:
        """Who pooled, for the run plan."""
        return self._tally.outcome()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as torch's: kernels belong to one fit."""
        return itself, (STOCK,)

    def _choose(self, x: Tensor, window: int) -> Pools:
        reason = self._first_call.failure or why_stock(x, window, self._device)
        if not reason and x.dtype not in self._kernels:
            kernels = self._first_call.attempt(lambda: _compile(x.dtype, x.device))
            if kernels is not None:
                self._kernels[x.dtype] = kernels
            reason = self._first_call.failure
        self._tally.count(reason)
        return STOCK if reason else self._kernels[x.dtype]


def why_stock(x: Tensor, window: int, device: torch.device) -> str:
    """Why torch pools a map; empty where the kernels can.

    Args:
        x: (B, C, H, W).
        window: side of the window.
        device: that the kernels run on.
    """
    if not torch.is_grad_enabled() or not x.requires_grad:
        return "no training"
    if window != WINDOW:
        return f"a window of {window}"
    if x.device.type != device.type:
        return f"a map on {x.device}"
    if x.dtype not in TYPES:
        return f"a map in {x.dtype}"
    if x.dim() != 4 or row_pitch(x) is None:
        return "a map that is not channels_last"
    return "" if x.numel() else "an empty map"


def _compile(dtype: torch.dtype, device: torch.device) -> Pools:
    from lucid_yolo.perf.kernels.max_pool import KernelPools, try_out  # noqa: PLC0415 - Triton is not everywhere

    try_out(dtype, device, WINDOW)
    return KernelPools()
