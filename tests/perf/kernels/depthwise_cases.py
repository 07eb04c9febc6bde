"""Depthwise convolutions and their definition."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Case = tuple[tuple[int, int, int, int], torch.dtype]

SMALL: tuple[Case, ...] = (
    ((2, 21, 6, 9), torch.float32),
    ((1, 16, 1, 1), torch.float32),  # no neighbour at all
    ((3, 8, 5, 4), torch.bfloat16),
    ((2, 64, 9, 12), torch.float32),  # several blocks of a line, several groups of lines
    ((1, 5, 19, 2), torch.float16),
)


def by_definition(x: Tensor, weight: Tensor) -> Tensor:
    """Each output is the sum of the 3 x 3 positions around it, each with its weight; outside of the map is 0."""
    height, width = x.shape[-2:]
    padded = F.pad(x, (1, 1, 1, 1))
    return sum(
        padded[..., i : i + height, j : j + width] * weight[:, 0, i, j].view(-1, 1, 1)
        for i in range(3)
        for j in range(3)
    )


def errors(function: Callable[[Tensor, Tensor], Tensor], case: Case, device: str) -> list[float]:
    """Relative errors of output, gradient of the input and gradient of the weight, in the norm, against float64."""
    (batch, channels, height, width), dtype = case
    generator = torch.Generator().manual_seed(channels)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    x, weight, gradient = (
        draw(batch, channels, height, width),
        draw(channels, 1, 3, 3),
        draw(batch, channels, height, width),
    )
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    weight.requires_grad_()
    y = function(x, weight)
    actual = (y, *torch.autograd.grad(y, (x, weight), gradient))
    exact = [t.detach().double().requires_grad_() for t in (x, weight)]
    expected_y = by_definition(*exact)
    expected = (expected_y, *torch.autograd.grad(expected_y, exact, gradient.double()))
    assert all(t.dtype == dtype for t in actual)
    assert all(t.is_contiguous(memory_format=torch.channels_last) for t in actual[:2])
    return [
        float((a.detach().double() - b.detach()).norm() / b.detach().norm())
        for a, b in zip(actual, expected, strict=True)
    ]


def bound(dtype: torch.dtype) -> float:
    """Largest error that rounding explains: sums are float32, results are rounded once."""
    return 1e-6 if dtype == torch.float32 else torch.finfo(dtype).eps / 2
