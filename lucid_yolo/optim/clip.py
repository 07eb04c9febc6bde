"""Gradient clipping by the global norm."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm


def clip_gradients(parameters: Iterable[Tensor], max_norm: float | None) -> Tensor:
    """Scale all gradients by min(1, max_norm / (norm + 1e-6)), in place, without reading the device.

    Args:
        parameters: those without a gradient are passed over.
        max_norm: ceiling of the norm; None or <= 0 leaves the gradients alone.

    Returns:
        0-d norm of all gradients together before clipping.
    """
    return clip_tensors([p.grad for p in parameters if p.grad is not None], max_norm)


def clip_tensors(tensors: list[Tensor], max_norm: float | None) -> Tensor:
    """Scale tensors of one device as ``clip_gradients`` scales gradients: what ``torch.nn.utils.clip_grad_norm_`` does.

    Args:
        tensors: of any shapes.
        max_norm: ceiling of the norm; None or <= 0 leaves the tensors alone.

    Returns:
        0-d norm of all tensors together before clipping.
    """
    norm = get_total_norm(tensors, foreach=True)
    if tensors and max_norm is not None and max_norm > 0:
        # Multiplying by a coefficient of 1 changes nothing, and costs less than reading whether it is 1.
        torch._foreach_mul_(tensors, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
