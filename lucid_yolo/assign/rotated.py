"""Candidates of rotated objects; the rest of the assignment looks at their envelopes (arXiv 2606.03748)."""

from __future__ import annotations

import torch
from torch import Tensor

from lucid_yolo.config.tasks import AssignerConfig
from lucid_yolo.data.batch import Targets
from lucid_yolo.ops.rotated import contains


def inside_rotated(centers: Tensor, targets: Targets, config: AssignerConfig) -> Tensor:
    """Tell which anchor centres lie in which rotated boxes, edges included.

    Small sides are widened about the middle of the object, along its own axes and for this test only.

    Args:
        centers: (A, 2) anchor centres in pixels.
        targets: packed objects with ``rotated``, T rows.
        config: the small-target rule.

    Returns:
        (T, A) bool, False in padding rows.
    """
    assert targets.rotated is not None
    boxes = targets.rotated
    sides = torch.where(boxes[:, 2:4] < config.small_side, config.small_reference, boxes[:, 2:4])
    widened = torch.cat((boxes[:, :2], sides, boxes[:, 4:]), -1)
    return contains(centers, widened) & targets.valid.unsqueeze(-1)
