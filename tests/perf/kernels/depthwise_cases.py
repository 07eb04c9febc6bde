"""Depthwise convolutions and their definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Case = tuple[tuple[int, int, int, int], torch.dtype]

TALL: tuple[Case, ...] = (
    ((1, 48, 5, 12), torch.float32),  # several walks beside and below each other, each the last one with a rest
    ((1, 5, 9, 2), torch.float16),
)
SMALL: tuple[Case, ...] = (
    ((2, 13, 5, 9), torch.float32),
    ((1, 16, 1, 1), torch.float32),  # no neighbour at all
    ((3, 8, 5, 4), torch.bfloat16),
    ((3, 6, 1, 7), torch.float32),  # the rows above and below belong to other pictures
    ((2, 9, 5, 1), torch.float32),
    *TALL,
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


def errors(
    function: Callable[[Tensor, Tensor], Tensor], case: Case, device: str, *, wanted: Sequence[int] = (0, 1)
) -> list[float]:
    """Relative errors in the norm against float64: of the output, and of gradients.

    Args:
        function: maps input and weight to the output.
        case: its shape and type.
        device: that computes.
        wanted: what needs a gradient: 0 the input, 1 the weight.
    """
    (batch, channels, height, width), dtype = case
    generator = torch.Generator().manual_seed(channels)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    x, weight, gradient = (
        draw(batch, channels, height, width),
        draw(channels, 1, 3, 3),
        draw(batch, channels, height, width),
    )
    inputs = (x.contiguous(memory_format=torch.channels_last), weight)
    exact = [t.double() for t in inputs]
    leaves, exact_leaves = ([pair[i].requires_grad_() for i in wanted] for pair in (inputs, exact))
    y, expected_y = function(*inputs), by_definition(*exact)
    actual = (y, *torch.autograd.grad(y, leaves, gradient))
    expected = (expected_y, *torch.autograd.grad(expected_y, exact_leaves, gradient.double()))
    assert all(t.dtype == dtype for t in actual)
    assert all(t.is_contiguous(memory_format=torch.channels_last) for t in actual if t.shape == y.shape)
    return [
        float((a.detach().double() - b.detach()).norm() / b.detach().norm())
        for a, b in zip(actual, expected, strict=True)
    ]


def bound(dtype: torch.dtype) -> float:
    """Largest error that rounding explains: sums are float32, results are rounded once."""
    return 1e-6 if dtype == torch.float32 else torch.finfo(dtype).eps / 2
