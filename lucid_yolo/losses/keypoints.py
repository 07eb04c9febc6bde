"""Loss of key points beside that of detection: residual log-likelihood and Object Keypoint Similarity.

The points of an anchor are learned where the anchor has an object. Those are few of all anchors, and a flow over all
of them would need a thousand times the memory of the loss of boxes (8400 anchors of 17 points: 0.4 GiB an image and
branch). So a fixed number of them is gathered, ``anchors_per_object`` for each target row of the one-to-many branch
and one for each of the one-to-one branch: no shape depends on data, and with as many as the assignment gives an
object none is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lucid_yolo.assign.task_aligned import Assignment
from lucid_yolo.config.tasks import AssignerConfig, KeypointLossConfig, PointDensity
from lucid_yolo.data.batch import Targets
from lucid_yolo.losses.detection import PART_NAMES as DETECTION_PARTS
from lucid_yolo.losses.detection import DetectionLoss, DetectionLosses, at_least_float32, stack_branches
from lucid_yolo.losses.flow import RealNVP
from lucid_yolo.nn.predictions import BranchPredictions, KeypointPredictions, Predictions
from lucid_yolo.ops.anchors import Anchors

PART_NAMES = (*DETECTION_PARTS, "points", "oks")

SPREAD_FLOOR = 1e-3
"""Least spread of a predicted point, in sides of the box: no label is that exact, and residuals stay bounded."""


def spread(raw: Tensor) -> Tensor:
    """Spread of a predicted coordinate in sides of the box, from the network's output: above the floor, below 1."""
    return SPREAD_FLOOR + (1 - SPREAD_FLOOR) * raw.sigmoid()


@dataclass(frozen=True, slots=True)
class PointSlots:
    """A fixed number of anchors, each once.

    Attributes:
        anchor: (P,) int64 positions in the flattened (B, A).
        row: (P,) int64 rows of their objects.
        taken: (P,) bool, whether the anchor has an object.
    """

    anchor: Tensor
    row: Tensor
    taken: Tensor


def choose_point_slots(assignment: Assignment, branch: int, count: int) -> PointSlots:
    """Choose the anchors of the largest weights; those without an object come last.

    Args:
        assignment: of the batch.
        branch: 0 one-to-many, 1 one-to-one.
        count: P, number of slots; never more than there are anchors.
    """
    positive = assignment.positive[branch].flatten()
    # Sorted, not by topk: a stable order makes the sums over the slots the same in every run. NaN comes first.
    weight = torch.where(positive, assignment.weight[branch].flatten(), -1.0)
    anchor = weight.argsort(descending=True, stable=True)[:count]
    return PointSlots(anchor, assignment.row[branch].flatten()[anchor], positive[anchor])


class KeypointLoss(nn.Module):
    """Detection loss with the loss of points, both branches blended as there.

    Points: with e the error in sides of the object's box and s = ``spread``, the residual r = e / s of a point has the
    negative log-likelihood ``sum over x, y of (log 2 s + |r|) - log G(r)`` (arXiv 2107.11291), where G is a flow that
    learns how errors differ from a Laplace density; without it the rest alone. Mean over the labelled points of all
    anchors that have an object.

    OKS: 1 - sum over labelled points of exp(-d^2 / (2 a k^2)) / their number, d in pixels, a the area of the object's
    box, k twice the point's sigma; mean over the anchors whose object has labelled points.

    The parameters of the flow are trained and saved with the loss. ``boxes`` holds ``alpha``.

    Args:
        num_classes: C.
        sigmas: spread of each of the K points in Object Keypoint Similarity.
        anchors: anchor points of the training canvas.
        loss: gains, density and slots.
        assigner: rules of the assignment.
    """

    point_gains: Tensor
    centers: Tensor
    strides: Tensor
    variances: Tensor

    def __init__(
        self,
        num_classes: int,
        sigmas: Sequence[float],
        anchors: Anchors,
        loss: KeypointLossConfig,
        assigner: AssignerConfig,
    ) -> None:
        super().__init__()
        self.boxes = DetectionLoss(num_classes, anchors, loss, assigner)
        self.flow = RealNVP() if loss.density is PointDensity.FLOW else None
        self.anchors_per_object = min(loss.anchors_per_object, assigner.topk_one_to_many)
        buffers = {
            "point_gains": torch.tensor([[loss.rle], [loss.oks]]),
            "centers": anchors.centers,
            "strides": anchors.strides,
            "variances": (2 * torch.tensor(sigmas)).square(),
        }
        for name, value in buffers.items():
            self.register_buffer(name, value, persistent=False)

    def set_epoch(self, epoch: int, max_epochs: int) -> None:
        """Set the weight of the branches for an epoch."""
        self.boxes.set_epoch(epoch, max_epochs)

    def forward(self, predictions: KeypointPredictions, targets: Targets) -> DetectionLosses:
        """Compute the loss of a batch in float32, whatever autocast says.

        Args:
            predictions: raw outputs of both branches, any float dtype.
            targets: packed objects with key points, in pixels of the training canvas.

        Returns:
            Total and parts. Terms without positives, or without labelled points, are exact zeros with finite gradients.
        """
        with torch.autocast(device_type=self.centers.device.type, enabled=False):
            one_to_many, one_to_one = (BranchPredictions(*branch[:2]) for branch in predictions)
            stacked = stack_branches(Predictions(one_to_many, one_to_one))
            assignment = self.boxes.assign(stacked, targets)
            terms = self.boxes.terms(stacked, assignment, targets), self.terms(predictions, assignment, targets)
            parts = torch.cat(terms).sum(1)
            return DetectionLosses(parts.sum(), parts.detach())

    def terms(self, predictions: KeypointPredictions, assignment: Assignment, targets: Targets) -> Tensor:
        """(2, 2) weighted contributions to the total: points and OKS by branch, with gradient."""
        rows = targets.valid.shape[0]
        counts = (self.anchors_per_object, 1)
        slots = [choose_point_slots(assignment, branch, rows * count) for branch, count in enumerate(counts)]
        raw = [branch.points.flatten(0, 1)[slot.anchor] for branch, slot in zip(predictions, slots, strict=True)]
        both = torch.cat([at_least_float32(x) for x in raw])
        likelihood, similarity = self._of_slots(both, slots, targets)
        first = len(slots[0].anchor)
        means = [
            torch.stack((_masked_mean(values[:first], mask[:first]), _masked_mean(values[first:], mask[first:])))
            for values, mask in (likelihood, similarity)
        ]
        return torch.stack(means) * self.point_gains * self.boxes.shares

    def _of_slots(
        self, raw: Tensor, slots: Sequence[PointSlots], targets: Targets
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Losses of every point (P, K) and of every slot (P,), each with what counts of them."""
        assert targets.keypoints is not None
        anchor, row, taken = (torch.cat([getattr(s, name) for s in slots]) for name in ("anchor", "row", "taken"))
        place = anchor % len(self.strides)
        wanted, learned = targets.keypoints[row, :, :2], targets.keypoints[row, :, 2]
        counts = taken.unsqueeze(-1) & (learned > 0)  # (P, K)
        mask = counts.unsqueeze(-1)
        raw = torch.where(mask, raw, 0.0)  # before any arithmetic: not even NaN of the others reaches a gradient
        points = torch.addcmul(self.centers[place].unsqueeze(1), raw[..., :2], self.strides[place].view(-1, 1, 1))
        low, high = targets.boxes[row].chunk(2, -1)
        side = (high - low).clamp(min=1.0)
        error = torch.where(mask, wanted - points, 0.0)
        similarity = self._similarity(error, side.prod(-1), counts)
        return (self._likelihood(error / side.unsqueeze(1), raw[..., 2:]), counts), (similarity, counts.any(-1))

    def _likelihood(self, error: Tensor, raw: Tensor) -> Tensor:
        """(P, K) negative log-likelihood of errors (P, K, 2), in sides of the box, at raw spreads (P, K, 2)."""
        scale = spread(raw)
        residual = error / scale
        negative = (residual.abs() + scale.log()).sum(-1) + 2 * math.log(2)
        if self.flow is None:
            return negative
        log_density: Tensor = self.flow(residual.flatten(0, 1))
        return negative - log_density.view_as(negative)

    def _similarity(self, error: Tensor, area: Tensor, counts: Tensor) -> Tensor:
        """(P,) 1 - OKS from errors (P, K, 2) and areas (P,) in pixels; 1 where no point counts."""
        exponent = error.square().sum(-1) / (2 * area.unsqueeze(-1) * self.variances)
        similarity = torch.where(counts, (-exponent).exp(), 0.0)
        return 1 - similarity.sum(-1) / counts.sum(-1).clamp(min=1)


def _masked_mean(values: Tensor, counts: Tensor) -> Tensor:
    """Mean of what counts; exactly zero where nothing does."""
    return torch.where(counts, values, 0.0).sum() / counts.sum().clamp(min=1)
