"""The kernels of ``kernels.norm`` in autograd's graph."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lucid_yolo.perf.kernels import norm as kernels


class KernelNorms:
    """Normalises in training with the kernels; see `lucid_yolo.nn.norms.Norms`.

    Maps are (N, C, H, W) in channels_last memory, N * H * W above 1; results have their type and memory order. A
    normalisation has weight, bias, running statistics and a fixed momentum, all float32.
    """

    def normalise(self, x: Tensor, norm: nn.Module) -> Tensor:
        """Do what ``norm(x)`` does."""
        y: Tensor = _Norm.apply(x, *_parameters(norm), norm, False)  # type: ignore[no-untyped-call]
        return y

    def normalise_and_activate(self, x: Tensor, norm: nn.Module) -> Tensor:
        """Do what ``silu(norm(x))`` does; what lies between the two is not rounded."""
        y: Tensor = _Norm.apply(x, *_parameters(norm), norm, True)  # type: ignore[no-untyped-call]
        return y


@torch.no_grad()
def try_out(x: Tensor, norm: nn.BatchNorm2d) -> None:
    """Compile and launch all kernels for a map; nothing is changed."""
    copy = deepcopy(norm)
    weight, bias = _parameters(copy)
    _, statistics = _normalise(x, copy, silu=True)
    kernels.backward(x, x, weight, bias, statistics, silu=True)


def _parameters(norm: nn.Module) -> tuple[Tensor, Tensor]:
    assert isinstance(norm, nn.BatchNorm2d)
    return norm.weight, norm.bias


def _normalise(x: Tensor, norm: nn.BatchNorm2d, *, silu: bool) -> tuple[Tensor, Tensor]:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.momentum is not None
    return kernels.forward(
        x,
        *_parameters(norm),
        norm.running_mean,
        norm.running_var,
        eps=norm.eps,
        momentum=norm.momentum,
        silu=silu,
    )


class _Norm(torch.autograd.Function):
    """Keeps the map that was normalised, and two numbers a channel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, norm: nn.BatchNorm2d, silu: bool) -> Tensor:
        y, statistics = _normalise(x, norm, silu=silu)
        ctx.save_for_backward(x, weight, bias, statistics)
        ctx.silu = silu
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return (*kernels.backward(gradient, *ctx.saved_tensors, silu=ctx.silu), None, None)
