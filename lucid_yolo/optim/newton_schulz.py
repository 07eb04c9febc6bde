"""Orthogonalization of matrices by a Newton-Schulz iteration (Muon, arXiv 2502.16982)."""

from __future__ import annotations

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
EPSILON = 1e-7
"""Added to the Frobenius norm: a zero matrix stays zero."""

GRAM_STEPS = 3
"""Steps between two products with a wide matrix."""

WIDE = 1.5
"""Ratio of columns to rows from which on iterating on the Gram matrix needs fewer operations."""


def newton_schulz(x: Tensor, *, steps: int, gram_steps: int = 1) -> Tensor:
    """Push the singular values of every matrix towards 1; singular vectors stay.

    A step is X <- (a I + b A + c A^2) X with A = X X^T. Since the next A is a polynomial of this one, several steps
    can be taken on A alone, their factors multiplied, and X multiplied once: fewer operations where X is much wider
    than high. Up to three such steps are at least as exact as single ones, with float32 and with TF32 products; the
    Gram matrix is then formed anew, because the rounding of its small eigenvalues grows by a^2 a step.

    Args:
        x: (matrices, rows, columns), rows <= columns for the least work. Zero rows and columns stay zero and change
            nothing else.
        steps: number of steps.
        gram_steps: steps taken on a Gram matrix before it is formed anew; 1 is the textbook iteration.

    Returns:
        A new tensor of the shape and type of ``x``.
    """
    with torch.autocast(x.device.type, enabled=False):
        x = x / (torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True) + EPSILON)
        for start in range(0, steps, gram_steps):
            factor = _gram_factor(torch.bmm(x, x.mT), min(gram_steps, steps - start))
            x = torch.bmm(factor, x)
    return x


def _gram_factor(gram: Tensor, steps: int) -> Tensor:
    """Product of the factors of several steps, from the Gram matrices (matrices, rows, rows) at their beginning."""
    a, b, c = COEFFICIENTS
    product: Tensor | None = None
    for step in range(steps):
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        factor.diagonal(dim1=-2, dim2=-1).add_(a)
        product = factor if product is None else torch.bmm(factor, product)
        if step < steps - 1:
            gram = torch.bmm(factor, torch.bmm(gram, factor))
    assert product is not None
    return product
