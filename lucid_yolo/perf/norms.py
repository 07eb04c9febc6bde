"""Who normalises in a training step: the fused kernels where a map and its normalisation suit them, torch otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as global_hooks

from lucid_yolo.nn.blocks import BatchNorm2d
from lucid_yolo.nn.norms import STOCK, Norms
from lucid_yolo.perf.capture.values import itself
from lucid_yolo.perf.first_call import TYPES, FirstCall
from lucid_yolo.perf.plan import Scalar
from lucid_yolo.perf.tally import Tally


class FusedNorms:
    """Normalises with the fused kernels; the first map compiles them.

    Args:
        device: of the step; maps elsewhere are torch's.
        first_call: of the kernels; where it fails, torch normalises from then on.
    """

    def __init__(self, device: torch.device, first_call: FirstCall) -> None:
        self._device = device
        self._first_call = first_call
        self._kernels: Norms | None = None
        self._tally = Tally()

    def normalise(self, x: Tensor, norm: nn.Module) -> Tensor:
        """Normalise; see `lucid_yolo.nn.norms.Norms`."""
        return self._choose(x, norm).normalise(x, norm)

    def normalise_and_activate(self, x: Tensor, norm: nn.Module) -> Tensor:
        """Normalise, then SiLU."""
        return self._choose(x, norm).normalise_and_activate(x, norm)

    def outcome(self) -> Mapping[str, Scalar]:
        """Who normalised, for the run plan."""
        return self._tally.outcome()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as torch's: kernels belong to one fit."""
        return itself, (STOCK,)

    def _choose(self, x: Tensor, norm: nn.Module) -> Norms:
        reason = self._first_call.failure or why_stock(x, norm, self._device)
        if not reason and self._kernels is None:
            self._kernels = self._first_call.attempt(lambda: _compile(x, norm))
            reason = self._first_call.failure
        self._tally.count(reason)
        return STOCK if self._kernels is None or reason else self._kernels


def why_stock(x: Tensor, norm: nn.Module, device: torch.device) -> str:
    """Why torch normalises a map; empty where the kernels can.

    Args:
        x: (N, C, H, W).
        norm: normalises it.
        device: that the kernels run on.
    """
    return _misfit_of_norm(norm) or _misfit_of_map(x, norm, device)


def _misfit_of_norm(norm: nn.Module) -> str:
    if not norm.training or not torch.is_grad_enabled():
        return "no training"
    if type(norm) is not BatchNorm2d or norm.momentum is None or norm.weight.dtype != torch.float32:
        return f"a normalisation of another kind ({type(norm).__name__})"
    if _is_watched(norm):
        return "hooks on a normalisation, or a forward of its own"
    return "" if norm.weight.requires_grad and norm.bias.requires_grad else "a frozen normalisation"


def _misfit_of_map(x: Tensor, norm: nn.Module, device: torch.device) -> str:
    if x.device.type != device.type or norm.weight.device != x.device:
        return f"a map on {x.device}"
    if x.dtype not in TYPES:
        return f"a map in {x.dtype}"
    if x.dim() != 4 or not x.is_contiguous(memory_format=torch.channels_last):
        return "a map that is not channels_last"
    return "a map of one position" if x.numel() <= x.shape[1] else ""


def _is_watched(norm: nn.Module) -> bool:
    """Whether somebody wants to see the module called."""
    own = (norm._forward_hooks, norm._forward_pre_hooks, norm._backward_hooks, norm._backward_pre_hooks)
    return any(own) or "forward" in vars(norm) or bool(global_hooks._has_any_global_hook())  # type: ignore[no-untyped-call]


def _compile(x: Tensor, norm: nn.Module) -> Norms:
    from lucid_yolo.perf.kernels.norm_function import KernelNorms, try_out  # noqa: PLC0415 - Triton is not everywhere

    assert isinstance(norm, BatchNorm2d)
    try_out(x.detach(), norm)
    return KernelNorms()
