"""Detection loss of both branches: CIoU, binary cross-entropy and L1, dense and static in shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lucid_yolo.assign.task_aligned import Assignment, task_aligned_assignment
from lucid_yolo.config.tasks import AssignerConfig, LossConfig
from lucid_yolo.data.batch import Targets
from lucid_yolo.nn.predictions import BranchPredictions, Predictions
from lucid_yolo.ops.anchors import Anchors
from lucid_yolo.ops.boxes import ciou_ltrb, ltrb_to_xyxy, xyxy_to_ltrb

PART_NAMES = ("box", "cls", "l1")


@dataclass(frozen=True, slots=True)
class DetectionLosses:
    """Loss of a batch.

    Attributes:
        total: 0-d, with gradient.
        parts: (P,) detached; the terms of the task, in the order of its names for them, weighted by gains and
            branches; they sum to the total.
    """

    total: Tensor
    parts: Tensor


def alpha_at(epoch: int, max_epochs: int, loss: LossConfig) -> float:
    """Weight of the one-to-many branch: linear from ``alpha_start`` in the first epoch to ``alpha_end`` in the last.

    Args:
        epoch: running epoch, from 0.
        max_epochs: planned epochs; a single one has the weight of the first.
        loss: the two ends.

    Returns:
        Weight of the one-to-many branch; the one-to-one branch has ``1 - alpha``.
    """
    remaining = max(1.0 - epoch / max(max_epochs - 1, 1), 0.0)
    return loss.alpha_end + remaining * (loss.alpha_start - loss.alpha_end)


def stack_branches(predictions: Predictions) -> BranchPredictions:
    """Put the branches in front, one-to-many first, in float32 (float64 stays).

    Returns:
        distances (2, B, A, 4) and logits (2, B, A, C).
    """
    return BranchPredictions(*stack_outputs(*predictions))


def stack_outputs(one_to_many: Sequence[Tensor], one_to_one: Sequence[Tensor]) -> Iterator[Tensor]:
    """Put each output of the two branches into one tensor, one-to-many first, in float32 (float64 stays)."""
    for pair in zip(one_to_many, one_to_one, strict=True):
        yield at_least_float32(torch.stack(pair))


def at_least_float32(x: Tensor) -> Tensor:
    """Widen narrower floats."""
    return x if x.dtype == torch.float64 else x.float()


def detection_terms(
    stacked: BranchPredictions,
    assignment: Assignment,
    targets: Targets,
    *,
    target_distances: Tensor,
    class_ids: Tensor,
) -> Tensor:
    """Mean box, class and L1 term of each branch, without gains.

    Each is a sum over the batch, weighted by the assignment, over ``max(sum of weights, 1)``. Box terms are computed
    for every anchor; those without an object compare two equal unit boxes, so that no value of theirs, not even NaN,
    reaches a gradient.

    Args:
        stacked: distances (2, B, A, 4) in stride units and logits (2, B, A, C).
        assignment: of the same batch.
        targets: packed objects.
        target_distances: (2, B, A, 4) ltrb of the assigned objects, stride units; anything where there is none.
        class_ids: (C,) 0 .. C-1.

    Returns:
        (3, 2): terms in the order of ``PART_NAMES`` by branch.
    """
    positive, weight = assignment.positive.unsqueeze(-1), assignment.weight
    distances = torch.where(positive, stacked.distances, 1.0)
    wanted = torch.where(positive, target_distances, 1.0)
    box = ((1.0 - ciou_ltrb(distances, wanted)) * weight).sum((1, 2))
    l1 = ((distances - wanted).abs().sum(-1) * weight).sum((1, 2))
    cls = class_sums(stacked.logits, assignment, targets, class_ids)
    return torch.stack((box, cls, l1)) / weight.sum((1, 2)).clamp(min=1.0)


def class_sums(logits: Tensor, assignment: Assignment, targets: Targets, class_ids: Tensor) -> Tensor:
    """Sum of the binary cross-entropy of each branch over all anchors and classes.

    Args:
        logits: (2, B, A, C).
        assignment: of the same batch; its weight is the soft target of the object's class, all others have 0.
        targets: packed objects.
        class_ids: (C,) 0 .. C-1.

    Returns:
        (2,) by branch.
    """
    labels = targets.classes[assignment.row].unsqueeze(-1)
    soft = torch.where(labels == class_ids, assignment.weight.unsqueeze(-1), 0.0)
    return F.binary_cross_entropy_with_logits(logits, soft, reduction="none").sum((1, 2, 3))


class BlendedLoss(nn.Module):
    """What the losses of two branches share: ``alpha * L_one_to_many + (1 - alpha) * L_one_to_one``.

    Has no entries in a state dict. ``alpha`` is a 0-d float32 buffer, filled in place, so that what recorded the step
    sees it.

    Args:
        num_classes: C.
        anchors: anchor points of the training canvas.
        loss: the first alpha.
        assigner: rules of the assignment.
        gains: weight of each term.
    """

    alpha: Tensor
    gains: Tensor
    centers: Tensor
    origins: Tensor
    signed_strides: Tensor
    class_ids: Tensor

    def __init__(
        self,
        num_classes: int,
        anchors: Anchors,
        loss: LossConfig,
        assigner: AssignerConfig,
        *,
        gains: Sequence[float],
    ) -> None:
        super().__init__()
        self.config = loss
        self.assigner = assigner
        buffers = {
            "alpha": torch.tensor(loss.alpha_start),
            "gains": torch.tensor(gains).unsqueeze(-1),
            "centers": anchors.centers,
            "origins": anchors.origins(),
            "signed_strides": anchors.signed_strides(),
            "class_ids": torch.arange(num_classes),
        }
        for name, value in buffers.items():
            self.register_buffer(name, value, persistent=False)

    def set_epoch(self, epoch: int, max_epochs: int) -> None:
        """Fill ``alpha`` for an epoch, see :func:`alpha_at`."""
        self.alpha.fill_(alpha_at(epoch, max_epochs, self.config))

    @property
    def shares(self) -> Tensor:
        """(2,) weights of the branches, one-to-many first."""
        return torch.stack((self.alpha, 1.0 - self.alpha))

    def weighted(self, terms: Tensor) -> Tensor:
        """Apply gains and branch weights to terms (P, 2) by branch: they sum to the total."""
        return terms * self.gains * self.shares


class DetectionLoss(BlendedLoss):
    """Assign both branches, score them and blend them, see ``BlendedLoss``.

    Args:
        num_classes: C.
        anchors: anchor points of the training canvas.
        loss: gains and the first alpha.
        assigner: rules of the assignment.
    """

    def __init__(self, num_classes: int, anchors: Anchors, loss: LossConfig, assigner: AssignerConfig) -> None:
        super().__init__(num_classes, anchors, loss, assigner, gains=(loss.box, loss.cls, loss.l1))

    def assign(self, stacked: BranchPredictions, targets: Targets) -> Assignment:
        """Assign the anchors of both branches in one pass.

        Args:
            stacked: output of :func:`stack_branches`; its gradient is not used.
            targets: packed objects.
        """
        boxes = ltrb_to_xyxy(stacked.distances.detach(), self.origins, self.signed_strides)
        return task_aligned_assignment(stacked.logits.detach(), boxes, self.centers, targets, self.assigner)

    def terms(self, stacked: BranchPredictions, assignment: Assignment, targets: Targets) -> Tensor:
        """(3, 2) weighted contributions to the total: terms in the order of ``PART_NAMES`` by branch, with gradient."""
        assigned = xyxy_to_ltrb(targets.boxes[assignment.row], self.origins, self.signed_strides)
        terms = detection_terms(stacked, assignment, targets, target_distances=assigned, class_ids=self.class_ids)
        return self.weighted(terms)

    def forward(self, predictions: Predictions, targets: Targets) -> DetectionLosses:
        """Compute the loss of a batch in float32, whatever autocast says.

        Args:
            predictions: raw outputs of both branches, any float dtype.
            targets: packed objects in pixels of the training canvas.

        Returns:
            Total and parts. Terms without positives are exact zeros with finite gradients.
        """
        with torch.autocast(device_type=self.centers.device.type, enabled=False):
            stacked = stack_branches(predictions)
            assignment = self.assign(stacked, targets)
            parts = self.terms(stacked, assignment, targets).sum(1)
            return DetectionLosses(parts.sum(), parts.detach())
