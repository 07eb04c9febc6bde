"""Max pooling whose gradient is reproducible on CUDA: torch's operators, or what somebody provides.

torch's backward kernel adds with atomics where windows overlap, so strict determinism refuses it. Here every input
position gathers from the outputs that chose it: no two threads write to one place, and the order of a sum is fixed.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lucid_yolo.nn.providers import provide, withdraw


class Pools(Protocol):
    """Takes the maximum over windows of a map."""

    def pool(self, x: Tensor, window: int) -> Tensor:
        """Map (B, C, H, W) to the same shape; outside of the map is never taken.

        Args:
            x: what a layer reads.
            window: side of the centred window in pixels, odd.
        """
        ...


class StockPools:
    """Made of torch's operators: what pools are unless somebody provides others."""

    def pool(self, x: Tensor, window: int) -> Tensor:
        """Call `max_pool`."""
        return max_pool(x, window)


STOCK = StockPools()


class MaxPool(nn.Module):
    """The maximum over a centred square window at stride 1.

    Args:
        window: side of the window in pixels, odd.

    Attributes:
        pools: who computes; not kept with the network.
    """

    pools: Pools = STOCK

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        pools = STOCK if torch.compiler.is_compiling() else self.pools  # a compiler looks for the operators
        return pools.pool(x, self.window)


def set_pools(network: nn.Module, pools: Pools) -> None:
    """Have a network's max pools computed by somebody.

    Args:
        network: any; other layers are left alone.
        pools: serve all of its layers.
    """
    provide(network, MaxPool, "pools", pools)


def forget_pools(network: nn.Module) -> None:
    """Have a network's max pools computed by torch again."""
    withdraw(network, MaxPool, "pools")


def max_pool(x: Tensor, window: int) -> Tensor:
    """Take the maximum over a centred square window at stride 1.

    Args:
        x: (B, C, H, W).
        window: side of the window in pixels, odd.

    Returns:
        (B, C, H, W); of equal values in a window the first in row-major order receives the gradient, as in torch.
    """
    if x.is_cuda:
        return GatherMaxPool.apply(x, window)  # type: ignore[no-any-return, no-untyped-call]
    return F.max_pool2d(x, window, stride=1, padding=window // 2)


class GatherMaxPool(torch.autograd.Function):
    """``max_pool2d`` at stride 1 with a gathering backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, window: int) -> Tensor:
        """Pool (B, C, H, W) and keep the flat position in H * W that each output was taken from."""
        y, source = F.max_pool2d(x, window, stride=1, padding=window // 2, return_indices=True)
        ctx.save_for_backward(source)
        ctx.window = window
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Sum, at each input position, the gradients of the outputs that were taken from it."""
        (source,) = ctx.saved_tensors
        window, margin = ctx.window, ctx.window // 2
        height, width = grad.shape[-2:]
        position = torch.arange(height * width, device=grad.device).view(height, width, 1, 1)
        sources = F.pad(source, (margin,) * 4, value=-1).unfold(2, window, 1).unfold(3, window, 1)
        grads = F.pad(grad, (margin,) * 4).unfold(2, window, 1).unfold(3, window, 1)
        gathered = torch.where(sources == position, grads, 0.0)
        return gathered.sum(dim=(-2, -1), dtype=grad.dtype), None
