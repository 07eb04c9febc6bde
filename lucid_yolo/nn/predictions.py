"""Raw network outputs, as the losses and decoders read them.

Every branch begins with ``distances`` and ``logits``, every network's predictions with ``one_to_many`` and
``one_to_one``. They are plain named tuples, one a task: what takes nested values apart (pytree, recorders, the
compiler) does not know generic ones.
"""

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


class SegmentBranch(NamedTuple):
    """Outputs of one branch for segmentation.

    Attributes:
        distances: as in ``BranchPredictions``.
        logits: as in ``BranchPredictions``.
        coefficients: (B, A, 32) weight of each prototype in the anchor's mask, between -1 and 1.
    """

    distances: Tensor
    logits: Tensor
    coefficients: Tensor


class KeypointBranch(NamedTuple):
    """Outputs of one branch for key points.

    Attributes:
        distances: as in ``BranchPredictions``.
        logits: as in ``BranchPredictions``.
        points: (B, A, K, 4) x and y from the anchor centre in units of the anchor's stride, unbounded, then the spread
            along x and y before its activation.
    """

    distances: Tensor
    logits: Tensor
    points: Tensor


class ObbBranch(NamedTuple):
    """Outputs of one branch for oriented boxes.

    Attributes:
        distances: as in ``BranchPredictions``, of the box before it is turned about its own centre.
        logits: as in ``BranchPredictions``.
        angles: (B, A) radians, unbounded; positive turns +x towards +y.
    """

    distances: Tensor
    logits: Tensor
    angles: Tensor


class Predictions(NamedTuple):
    """Outputs of both branches."""

    one_to_many: BranchPredictions
    one_to_one: BranchPredictions


class KeypointPredictions(NamedTuple):
    """Outputs of both branches for key points."""

    one_to_many: KeypointBranch
    one_to_one: KeypointBranch


class ObbPredictions(NamedTuple):
    """Outputs of both branches for oriented boxes."""

    one_to_many: ObbBranch
    one_to_one: ObbBranch


class SegmentPredictions(NamedTuple):
    """Outputs of both branches for segmentation, and the maps that they share.

    Attributes:
        one_to_many: coefficients and boxes.
        one_to_one: coefficients and boxes.
        prototypes: (B, 32, S/4, S/4) maps whose weighted sums are the logits of masks.
        semantic: (B, C, S/8, S/8) one logit a class and cell, to train with; empty in evaluation mode, and not None,
            so that everything nested in here is a tensor or a tuple.
    """

    one_to_many: SegmentBranch
    one_to_one: SegmentBranch
    prototypes: Tensor
    semantic: Tensor | tuple[()]


class DeployedSegment(NamedTuple):
    """What a deployed network computes for segmentation; see ``SegmentPredictions``."""

    one_to_one: SegmentBranch
    prototypes: Tensor
