"""The order in memory of gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def with_gradient_alike(maps: Tensor) -> Tensor:
    """Let the gradient of maps come in the memory order of the maps, whatever computes it.

    The gradient of a convolution's bias is a sum whose order, and so whose last bits, follow that of memory. A
    recording reads gradients at a fixed place, which lies like this. Where a copy is made, the backward pass of the
    convolution would make it.

    Args:
        maps: (B, C, H, W), contiguous or channels_last.

    Returns:
        a view of them.
    """
    if not maps.requires_grad:
        return maps
    return _Alike.apply(maps)  # type: ignore[no-any-return, no-untyped-call]


class _Alike(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, maps: Tensor) -> Tensor:
        lies_last = maps.is_contiguous(memory_format=torch.channels_last)
        ctx.memory_format = torch.channels_last if lies_last else torch.contiguous_format
        return maps.view_as(maps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.contiguous(memory_format=ctx.memory_format)
