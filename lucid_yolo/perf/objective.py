"""What a training step computes: network and loss, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor


class Objective:
    """Network and loss, each perhaps recorded.

    Args:
        network: maps images (B, 3, S, S) to predictions.
        loss: maps predictions and targets to losses.
    """

    def __init__(self, network: Callable[[Tensor], Any], loss: Callable[[Any, Any], Any]) -> None:
        self._network = network
        self._loss = loss

    def __call__(self, images: Tensor, targets: Any) -> Any:
        """Compute the losses of a batch."""
        return self._loss(self._network(images), targets)
