"""Gradient clipping by the global norm."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm


def clip_gradients(parameters: Iterable[Tensor], max_norm: float | None) -> Tensor:
    """Scale all gradients by min(1, max_norm / (norm + 1e-6)), in place, without reading the device.

    Args:
        parameters: those without a gradient are passed over.
        max_norm: ceiling of the norm; None or <= 0 leaves the gradients alone.

    Returns:
        0-d norm of all gradients together before clipping.
    """
    parameters = list(parameters)
    norm = get_total_norm([p.grad for p in parameters if p.grad is not None], foreach=True)
    if max_norm is not None and max_norm > 0:
        clip_grads_with_norm_(parameters, max_norm, norm, foreach=True)
    return norm
