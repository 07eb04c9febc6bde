"""Segmentation loss: detection's terms, masks of the assigned objects, and maps of the classes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lucid_yolo.assign.task_aligned import Assignment
from lucid_yolo.config.tasks import AssignerConfig, SegmentLossConfig
from lucid_yolo.data.batch import Targets
from lucid_yolo.losses.detection import PART_NAMES as DETECTION_PARTS
from lucid_yolo.losses.detection import DetectionLoss, DetectionLosses, at_least_float32, stack_branches
from lucid_yolo.losses.masks import bit_places, mask_bce, pick_rows, unpack
from lucid_yolo.nn.predictions import BranchPredictions, Predictions, SegmentPredictions
from lucid_yolo.ops.anchors import Anchors

PART_NAMES = (*DETECTION_PARTS, "mask", "semantic")
MASK_STRIDE = 4.0
"""Pixels of the canvas a side of a mask's cell."""


class MaskSlots(NamedTuple):
    """Anchors of one branch whose masks are learned, K an image, whatever the number of objects.

    Attributes:
        anchors: (B, K) int64, all different within an image.
        rows: (B, K) int64, row of the anchor's object in the packed targets.
        used: (B, K) bool, False where there is no object left for the slot.
    """

    anchors: Tensor
    rows: Tensor
    used: Tensor


def choose_mask_slots(assignment: Assignment, branch: int, limit: int) -> MaskSlots:
    """Take the positive anchors of the largest weight.

    Args:
        assignment: of the batch.
        branch: 0: one-to-many, 1: one-to-one.
        limit: slots an image; K is the smaller one of this and the number of anchors.
    """
    weight = torch.where(assignment.positive[branch], assignment.weight[branch], -1.0)
    weight, anchors = weight.topk(min(limit, weight.shape[1]), dim=1)
    return MaskSlots(anchors, assignment.row[branch].gather(1, anchors), ~(weight < 0))  # "not <" holds for NaN too


def class_maps(targets: Targets, batch: int, num_classes: int) -> Tensor:
    """Where objects of each class are: the union of their masks at half of their resolution.

    A cell is covered when one of the four cells of a mask in it is.

    Args:
        targets: packed objects with their masks.
        batch: B.
        num_classes: C.

    Returns:
        (B, C, S/8 * S/8) uint8, 0 or 1.
    """
    assert targets.masks is not None
    pairs = targets.masks[:, ::2] | targets.masks[:, 1::2]
    pairs = pairs | (pairs << 1)  # each pair of cells in a row in its higher bit
    halved = unpack(pairs, bit_places(pairs.device)[::2]).flatten(1)
    maps = halved.new_zeros(batch * num_classes, halved.shape[1])
    place = (targets.image_index * num_classes + targets.classes).unsqueeze(1).expand_as(halved)
    return maps.scatter_reduce_(0, place, halved, "amax").view(batch, num_classes, -1)  # padding rows are empty


def semantic_loss(logits: Tensor, maps: Tensor) -> Tensor:
    """Mean binary cross-entropy, plus the mean over images and classes of soft Dice with 1 added to both sums.

    Args:
        logits: (B, C, N).
        maps: (B, C, N) 0 or 1.
    """
    truth = maps.to(logits.dtype)
    probability = logits.sigmoid()
    overlap = 2.0 * (probability * truth).sum(-1) + 1.0
    dice = 1.0 - overlap / (probability.sum(-1) + truth.sum(-1) + 1.0)
    return F.binary_cross_entropy_with_logits(logits, truth) + dice.mean()


class SegmentationLoss(nn.Module):
    """Detection's loss, plus the masks of both branches, blended like it, plus maps of the classes.

    The mask term of a branch is the mean over its slots that are in use: binary cross-entropy at the grid of the
    prototypes, summed over the cells of the object's box, over the area of the box in cells (at least 1).

    Args:
        num_classes: C.
        anchors: anchor points of the training canvas.
        loss: gains, the first alpha and the numbers of slots.
        assigner: rules of the assignment.
    """

    def __init__(self, num_classes: int, anchors: Anchors, loss: SegmentLossConfig, assigner: AssignerConfig) -> None:
        super().__init__()
        self.config = loss
        self.num_classes = num_classes
        self.detection = DetectionLoss(num_classes, anchors, loss, assigner)

    @property
    def alpha(self) -> Tensor:
        """0-d, weight of the one-to-many branch."""
        return self.detection.alpha

    def set_epoch(self, epoch: int, max_epochs: int) -> None:
        """Fill ``alpha`` for an epoch."""
        self.detection.set_epoch(epoch, max_epochs)

    def masks(self, predictions: SegmentPredictions, assignment: Assignment, targets: Targets) -> Tensor:
        """(2,) mask term of each branch, without gain and share, with gradient."""
        assert targets.masks is not None
        limits = (self.config.mask_slots_one_to_many, self.config.mask_slots_one_to_one)
        slots = [choose_mask_slots(assignment, branch, limit) for branch, limit in enumerate(limits)]
        branches = (predictions.one_to_many, predictions.one_to_one)
        picked = torch.cat([pick_rows(b.coefficients, s.anchors) for b, s in zip(branches, slots, strict=True)], 1)
        rows, used = torch.cat([s.rows for s in slots], 1), torch.cat([s.used for s in slots], 1)

        unused = ~used.unsqueeze(-1)
        boxes = (targets.boxes[rows] / MASK_STRIDE).masked_fill_(unused, 0.0)
        coefficients = at_least_float32(picked).masked_fill(unused, 0.0)
        sums = mask_bce(coefficients, at_least_float32(predictions.prototypes), targets.masks, rows, boxes)
        low, high = boxes.chunk(2, -1)
        means = sums / (high - low).prod(-1).clamp(min=1.0)
        many = slots[0].used.shape[1]
        totals = torch.stack((means[:, :many].sum(), means[:, many:].sum()))
        return totals / torch.stack([s.used.sum() for s in slots]).clamp(min=1)

    def terms(
        self, predictions: SegmentPredictions, stacked: BranchPredictions, assignment: Assignment, targets: Targets
    ) -> Tensor:
        """(5,) weighted contributions to the total, in the order of ``PART_NAMES``, with gradient.

        Args:
            predictions: of a network in training mode.
            stacked: their boxes and classes, see ``stack_detections``.
            assignment: of the same batch.
            targets: packed objects.
        """
        assert isinstance(predictions.semantic, Tensor), "a network in evaluation mode has no class maps to train"
        detection = self.detection.terms(stacked, assignment, targets).sum(1)
        masks = (self.masks(predictions, assignment, targets) * self.detection.shares).sum() * self.config.mask
        logits = at_least_float32(predictions.semantic.flatten(2))
        maps = class_maps(targets, logits.shape[0], self.num_classes)
        semantic = semantic_loss(logits, maps) * self.config.semantic
        return torch.cat((detection, torch.stack((masks, semantic))))

    def forward(self, predictions: SegmentPredictions, targets: Targets) -> DetectionLosses:
        """Compute the loss of a batch in float32, whatever autocast says.

        Args:
            predictions: raw outputs of a network in training mode, any float dtype.
            targets: packed objects in pixels of the training canvas, with masks.

        Returns:
            Total, and five parts in the order of ``PART_NAMES``. Terms without positives are exact zeros with finite
            gradients.
        """
        with torch.autocast(device_type=self.alpha.device.type, enabled=False):
            stacked = stack_detections(predictions)
            assignment = self.detection.assign(stacked, targets)
            parts = self.terms(predictions, stacked, assignment, targets)
            return DetectionLosses(parts.sum(), parts.detach())


def stack_detections(predictions: SegmentPredictions) -> BranchPredictions:
    """Boxes and classes of both branches, see ``stack_branches``."""
    branches = (predictions.one_to_many, predictions.one_to_one)
    return stack_branches(Predictions(*(BranchPredictions(*branch[:2]) for branch in branches)))
