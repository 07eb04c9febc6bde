"""Raw network outputs, as the losses and decoders read them."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class BranchPredictions(NamedTuple):
    """Outputs of one branch over all A anchors, level-major and row-major.

    Attributes:
        distances: (B, A, 4) left, top, right, bottom from the anchor centre, in units of the anchor's stride,
            unbounded.
        logits: (B, A, C) one logit a class.
    """

    distances: Tensor
    logits: Tensor


class Predictions(NamedTuple):
    """Outputs of both branches."""

    one_to_many: BranchPredictions
    one_to_one: BranchPredictions
