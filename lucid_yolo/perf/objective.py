"""What a training step computes: network and loss, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lucid_yolo.data.batch import Targets

Mark = Callable[[str], None]
"""Told the name of a part of the step when it ends."""


@dataclass(frozen=True, slots=True)
class StepLosses:
    """Losses of a batch.

    Attributes:
        total: 0-d loss; with a graph behind it unless the step is complete.
        parts: (terms,) of it, for the log.
        is_complete: whether the step was computed to its end: gradients, update and average included.
    """

    total: Tensor
    parts: Tensor
    is_complete: bool = False


def unheard(part: str) -> None:
    """What a mark is while nobody measures."""


class Objective:
    """Network and loss, each perhaps recorded.

    Args:
        network: maps images (B, 3, S, S) to predictions; whoever measures may put its own in its place.
        loss: maps predictions and targets to losses.
    """

    def __init__(self, network: Callable[[Tensor], Any], loss: Callable[[Any, Targets], Any]) -> None:
        self.network = network
        self._loss = loss

    def __call__(self, images: Tensor, targets: Targets, mark: Mark = unheard) -> Any:
        """Compute the losses of a batch; ``mark`` hears when the network is done."""
        predictions = self.network(images)
        mark("forward")
        return self._loss(predictions, targets)
