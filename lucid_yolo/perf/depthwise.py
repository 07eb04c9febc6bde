"""Who computes depthwise convolutions: our kernels where a map suits them, torch otherwise."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lucid_yolo.config.schema import DepthwiseName, OnUnmet, RootConfig
from lucid_yolo.nn.depthwise import STOCK
from lucid_yolo.perf.capture.values import itself
from lucid_yolo.perf.first_call import TYPES, FirstCall, Words
from lucid_yolo.perf.plan import RunPlan, Scalar

WORDS = Words(
    what="the kernels for depthwise convolutions",
    row="depthwise",
    option="depthwise=triton",
    without="depthwise=stock",
    instead="torch computes them with cuDNN",
)
SIDE = 3
"""Side of the filters that the kernels know."""


class TritonFilters:
    """Filters with our kernels. Their first call compiles them; where that fails, torch filters from then on.

    Args:
        on_unmet: whether such a failure is an error instead.
    """

    def __init__(self, on_unmet: OnUnmet) -> None:
        self._first_call = FirstCall(WORDS, on_unmet)
        self._compiled: set[torch.dtype] = set()
        self._seconds = 0.0

    def filter(self, x: Tensor, weight: Tensor) -> Tensor:
        """Filter; see `lucid_yolo.nn.depthwise.Filters`."""
        if not x.is_cuda or weight.shape[-1] != SIDE or self._first_call.failure:
            return STOCK.filter(x, weight)
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
        if dtype not in TYPES or (dtype not in self._compiled and not self._compile(dtype, x.device)):
            return STOCK.filter(x, weight)
        from lucid_yolo.perf.kernels.depthwise import depthwise  # noqa: PLC0415 - Triton is not everywhere

        return depthwise(x.to(dtype), weight.to(dtype))

    def outcome(self) -> Mapping[str, Scalar]:
        """What happened, for the run plan."""
        if self._first_call.failure:
            return {"failure": self._first_call.failure}
        return {"build_seconds": round(self._seconds, 2)}

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as torch's: what was compiled belongs to one process."""
        return itself, (STOCK,)

    def _compile(self, dtype: torch.dtype, device: torch.device) -> bool:
        began = time.perf_counter()
        with torch.autocast("cuda", enabled=False), torch.enable_grad():
            done = self._first_call.attempt(lambda: _try_out(dtype, device))
        self._seconds += time.perf_counter() - began
        if done:
            self._compiled.add(dtype)
        return bool(done)


def plan_filters(plan: RunPlan, config: RootConfig) -> TritonFilters | None:
    """Make what a plan has active; None: torch's own.

    Args:
        plan: of a run.
        config: the run. Where it leaves the choice to us, kernels that fail are no unmet request.
    """
    if plan["depthwise"].active != DepthwiseName.TRITON:
        return None
    is_asked = config.depthwise.selected is DepthwiseName.TRITON
    return TritonFilters(config.on_unmet if is_asked else OnUnmet.FALLBACK)


def _try_out(dtype: torch.dtype, device: torch.device) -> bool:
    """Compile all there is for a type, forward and backward: Triton does so anew where 16 divides the channels."""
    from lucid_yolo.perf.kernels.depthwise import depthwise  # noqa: PLC0415 - Triton is not everywhere

    for channels in (16, 21):
        x = torch.zeros(1, channels, 2, 2, dtype=dtype, device=device, requires_grad=True)
        weight = torch.zeros(channels, 1, SIDE, SIDE, dtype=dtype, device=device, requires_grad=True)
        y = depthwise(x, weight)
        torch.autograd.grad(y, (x, weight), torch.zeros_like(y))
    return True
