"""Loss of oriented boxes: overlap of Gaussians, L1, angle and class, dense and static in shape."""

from __future__ import annotations

import torch
from torch import Tensor

from lucid_yolo.assign.rotated import inside_rotated
from lucid_yolo.assign.task_aligned import Assignment, task_aligned_assignment
from lucid_yolo.config.tasks import AssignerConfig, ObbLossConfig
from lucid_yolo.data.batch import Targets
from lucid_yolo.losses.detection import BlendedLoss, DetectionLosses, class_sums, stack_outputs
from lucid_yolo.nn.predictions import ObbBranch, ObbPredictions
from lucid_yolo.ops.anchors import Anchors
from lucid_yolo.ops.rotated import (
    anchors_to_canvas,
    angle_penalty,
    canvas_to_anchors,
    envelopes,
    ltrb_to_rotated,
    nearest_encoding,
    prob_iou_hellinger,
)

PART_NAMES = ("box", "cls", "l1", "angle")


def rotated_terms(
    stacked: ObbBranch, assignment: Assignment, targets: Targets, *, target_boxes: Tensor, class_ids: Tensor
) -> Tensor:
    """Mean overlap, class, L1 and angle term of each branch, without gains (arXiv 2606.03748).

    Each is a sum over the batch, weighted by the assignment, over ``max(sum of weights, 1)``. Overlap is the Hellinger
    distance of ProbIoU; L1 sums over centre and sides in stride units, of the target's encoding that is nearest to the
    predicted angle. Every term is equal for equivalent encodings, of the target and of the prediction. Anchors without
    an object compare two equal boxes, so that no value of theirs, not even NaN, reaches a gradient.

    Args:
        stacked: distances (2, B, A, 4), logits (2, B, A, C) and angles (2, B, A).
        assignment: of the same batch.
        targets: packed objects.
        target_boxes: (2, B, A, 5) boxes of the assigned objects from the anchors, lengths in stride units; anything
            where there is none.
        class_ids: (C,) 0 .. C-1.

    Returns:
        (4, 2): terms in the order of ``PART_NAMES`` by branch.
    """
    positive, weight = assignment.positive.unsqueeze(-1), assignment.weight
    distances = torch.where(positive, stacked.distances, 1.0)
    angles = torch.where(assignment.positive, stacked.angles, 0.0)
    predicted = ltrb_to_rotated(distances, angles)
    wanted = nearest_encoding(torch.where(positive, target_boxes, predicted.detach()), angles)
    box = (prob_iou_hellinger(predicted, wanted) * weight).sum((1, 2))
    l1 = ((predicted - wanted)[..., :4].abs().sum(-1) * weight).sum((1, 2))
    angle = (angle_penalty(predicted, wanted) * weight).sum((1, 2))
    cls = class_sums(stacked.logits, assignment, targets, class_ids)
    return torch.stack((box, cls, l1, angle)) / weight.sum((1, 2)).clamp(min=1.0)


class RotatedLoss(BlendedLoss):
    """Assign both branches, score them and blend them, see ``BlendedLoss``.

    Rotated boxes decide which anchors are candidates; metric and weights of the assignment are those of the envelopes.

    Args:
        num_classes: C.
        anchors: anchor points of the training canvas.
        loss: gains and the first alpha.
        assigner: rules of the assignment.
    """

    strides: Tensor

    def __init__(self, num_classes: int, anchors: Anchors, loss: ObbLossConfig, assigner: AssignerConfig) -> None:
        gains = (loss.box, loss.cls, loss.l1, loss.angle)
        super().__init__(num_classes, anchors, loss, assigner, gains=gains)
        self.register_buffer("strides", anchors.strides, persistent=False)

    def assign(self, stacked: ObbBranch, targets: Targets) -> Assignment:
        """Assign the anchors of both branches in one pass.

        Args:
            stacked: both branches, one-to-many first; its gradient is not used.
            targets: packed objects with ``rotated``.
        """
        boxes = ltrb_to_rotated(stacked.distances.detach(), stacked.angles.detach())
        return task_aligned_assignment(
            stacked.logits.detach(),
            envelopes(anchors_to_canvas(boxes, self.centers, self.strides)),
            self.centers,
            targets,
            self.assigner,
            inside_rotated,
        )

    def terms(self, stacked: ObbBranch, assignment: Assignment, targets: Targets) -> Tensor:
        """(4, 2) weighted contributions to the total: terms in the order of ``PART_NAMES`` by branch, with gradient."""
        assert targets.rotated is not None
        assigned = canvas_to_anchors(targets.rotated[assignment.row], self.centers, self.strides)
        return self.weighted(
            rotated_terms(stacked, assignment, targets, target_boxes=assigned, class_ids=self.class_ids)
        )

    def forward(self, predictions: ObbPredictions, targets: Targets) -> DetectionLosses:
        """Compute the loss of a batch in float32, whatever autocast says.

        Args:
            predictions: raw outputs of both branches, any float dtype.
            targets: packed objects with ``rotated``, in pixels of the training canvas.

        Returns:
            Total and parts. Terms without positives are exact zeros with finite gradients.
        """
        with torch.autocast(device_type=self.centers.device.type, enabled=False):
            stacked = ObbBranch(*stack_outputs(*predictions))
            assignment = self.assign(stacked, targets)
            parts = self.terms(stacked, assignment, targets).sum(1)
            return DetectionLosses(parts.sum(), parts.detach())
