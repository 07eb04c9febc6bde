"""Max pools over maps of every kind, and what torch computes of them on a processor."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Pool = Callable[[Tensor, int], Tensor]
WINDOW = 5

SMALL = (
    (2, 21, 6, 9),
    (1, 16, 1, 1),  # no neighbour at all
    (3, 8, 2, 3),  # smaller than a window
    (2, 48, 7, 6),  # several tiles of rows and of channels
    (1, 33, 1, 40),
    (2, 1, 12, 1),
)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Channels of a wider map: where they begin, how many they are, and of how many.
SLICES = ((16, 32, 64), (0, 16, 80), (4, 16, 32), (16, 16, 40), (3, 5, 9), (20, 20, 80))


def draw(
    shape: tuple[int, ...], dtype: torch.dtype, *, levels: int, device: str = "cpu", seed: int = 0
) -> tuple[Tensor, Tensor]:
    """A map of so many different values, and a gradient of whole numbers, of which sums are exact in every type."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(levels, shape, generator=generator) / levels - 0.5
    gradient = torch.randint(-9, 10, shape, generator=generator)
    first, second = (t.to(device, dtype).contiguous(memory_format=torch.channels_last) for t in (x, gradient))
    return first, second


def some_channels(x: Tensor, begin: int, channels: int) -> Tensor:
    """The same numbers as some channels of a wider map."""
    batch, own, height, width = x.shape
    wider = torch.full((batch, channels, height, width), torch.nan, dtype=x.dtype, device=x.device)
    wider = wider.contiguous(memory_format=torch.channels_last)
    return wider[:, begin : begin + own].copy_(x)


def compute(pool: Pool, x: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Maxima and the gradient of the map."""
    x = x.detach().requires_grad_()
    y = pool(x, WINDOW)
    (found,) = torch.autograd.grad(y, x, gradient)
    return y.detach(), found


def by_torch(x: Tensor, window: int) -> Tensor:
    return F.max_pool2d(x, window, stride=1, padding=window // 2)


def assert_as_torch(pool: Pool, x: Tensor, gradient: Tensor) -> None:
    """Compare the bits with those of torch on a processor in float64, rounded once."""
    found = compute(pool, x, gradient)
    expected = compute(by_torch, x.cpu().double(), gradient.cpu().double())
    for name, ours, theirs in zip(("y", "gradient"), found, expected, strict=True):
        assert ours.dtype == x.dtype
        assert ours.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(ours.cpu().nan_to_num(nan=99), theirs.to(x.dtype).nan_to_num(nan=99)), (name, x.shape)


def special(dtype: torch.dtype, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """NaN, of which a window may have several, infinities, whole windows of them, and both zeros."""
    x, gradient = draw((2, 16, 9, 11), dtype, levels=3, device=device)
    x[0, :8, 1, 2] = x[0, :8, 3, 3] = x[0, :4, 3, 1] = torch.nan
    x[0, 8:, 2:6, 3:] = torch.inf
    x[1, :8] = -torch.inf
    x[1, :3, 8, 10] = torch.nan
    x[1, 8:, ::2], x[1, 8:, 1::2] = 0.0, -0.0
    return x, gradient
