"""Task-aligned assignment of both branches in one pass over packed objects.

Metric and weights after TOOD (arXiv 2108.07755), one-to-many and one-to-one as in YOLOv10 (arXiv 2405.14458).
Everything is dense and static in shape: no boolean indexing, no read of the device, no operation that CUDA runs in
random order. Pairs of objects and anchors, (2, T, A), are the only large tensors; conflicts are settled among the T x
k candidates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lucid_yolo.config.tasks import AssignerConfig
from lucid_yolo.data.batch import Targets
from lucid_yolo.ops.boxes import box_area

CandidateTest = Callable[[Tensor, Targets, AssignerConfig], Tensor]
"""Says, (T, A) bool, which anchor centres (A, 2) are candidates of which objects; padding rows have none."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What each anchor learns; the first dimension is the branch: one-to-many, one-to-one.

    Attributes:
        positive: (2, B, A) bool, the anchor has an object.
        row: (2, B, A) int64, its row in the packed targets; 0 where there is none.
        weight: (2, B, A) its soft class target and weight in the box terms, 0 .. 1; 0 where there is none.
    """

    positive: Tensor
    row: Tensor
    weight: Tensor


def inside_boxes(centers: Tensor, targets: Targets, config: AssignerConfig) -> Tensor:
    """Tell which anchor centres lie in which objects, edges included.

    Small sides are widened about the middle of the object, for this test only.

    Args:
        centers: (A, 2) anchor centres in pixels.
        targets: packed objects, T rows.
        config: the small-target rule.

    Returns:
        (T, A) bool, False in padding rows.
    """
    low, high = targets.boxes.unsqueeze(1).chunk(2, -1)
    middle, small = (low + high) / 2, high - low < config.small_side
    low = torch.where(small, middle - config.small_reference / 2, low)
    high = torch.where(small, middle + config.small_reference / 2, high)
    in_x, in_y = ((centers >= low) & (centers <= high)).unbind(-1)
    return in_x & in_y & targets.valid.unsqueeze(-1)


@torch.no_grad()
def task_aligned_assignment(
    logits: Tensor,
    boxes: Tensor,
    centers: Tensor,
    targets: Targets,
    config: AssignerConfig,
    candidates: CandidateTest = inside_boxes,
) -> Assignment:
    """Assign anchors to objects.

    An anchor is a candidate of an object when its centre lies in it. Of those an object takes the k
    with the largest ``t = s^alpha * u^beta``: s is the probability of its class, u the IoU of the decoded box with
    it. An anchor that several objects took stays with the largest t (equal: the lowest row); in the one-to-one branch
    an object then keeps its best anchor alone. The weight is ``t * max u / max t``, maxima over the object's anchors.

    A NaN in a candidate's prediction is never lost: the anchor is assigned and its weight is NaN.

    Args:
        logits: (2, B, A, C) class logits of both branches, float32 or wider.
        boxes: (2, B, A, 4) decoded boxes, xyxy pixels, same dtype.
        centers: (A, 2) anchor centres in pixels.
        targets: packed objects, T rows; padding rows take part in nothing.
        config: exponents, numbers of candidates and the small-target rule.
        candidates: when a centre lies in an object.

    Returns:
        The assignment, weights in the dtype of the inputs.
    """
    _, batch, count, _ = logits.shape
    rows = targets.valid.shape[0]
    candidate = candidates(centers, targets, config)
    quality = _packed_iou(boxes, targets)
    metric = _class_probability(logits, targets).pow_(config.alpha).mul_(quality.pow(config.beta))
    metric = torch.where(candidate, metric, -1.0)

    per_branch = (config.topk_one_to_many, config.topk_one_to_one)
    score, anchor = metric.topk(min(max(per_branch), count), dim=-1)  # (2, T, K), best first
    quality = quality.gather(-1, anchor)
    branch = torch.arange(2, device=score.device).view(2, 1, 1)
    rank = torch.arange(score.shape[-1], device=score.device)
    allowed = rank < per_branch[0] + branch * (per_branch[1] - per_branch[0])
    taken = ~(score < 0) & allowed  # "not <" holds for NaN too

    slot = (anchor + (branch * batch + targets.image_index.unsqueeze(-1)) * count).flatten()
    row = torch.arange(rows, device=score.device).view(1, rows, 1).expand_as(anchor)
    slots = 2 * batch * count
    taken = _settle_conflicts(taken, score, slot, row, slots)
    most = rank.shape[0] - branch * (rank.shape[0] - 1)  # one-to-one: only the first that is left
    taken = taken & (taken.cumsum(-1) <= most)

    weight = _weights(taken, score, quality)
    owner = row.new_full((slots,), rows).scatter_reduce_(0, slot, torch.where(taken, row, rows).flatten(), "amin")
    spread = weight.new_zeros(slots).scatter_reduce_(0, slot, weight.flatten(), "amax")
    shape = (2, batch, count)
    positive = owner < rows
    return Assignment(positive.view(shape), torch.where(positive, owner, 0).view(shape), spread.view(shape))


def _packed_iou(boxes: Tensor, targets: Targets) -> Tensor:
    """(2, T, A) IoU of each object with all boxes of its image, in place in one (2, T, 4, A) copy of them."""
    planes = boxes.transpose(-1, -2).contiguous().index_select(1, targets.image_index)
    objects = targets.boxes.to(boxes.dtype)
    low, high = planes.chunk(2, -2)
    low.clamp_(min=objects[:, :2, None])
    high.clamp_(max=objects[:, 2:, None])
    width, height = high.sub_(low).clamp_(min=0).unbind(-2)
    intersection = width * height
    area = box_area(objects).clamp(min=torch.finfo(boxes.dtype).tiny).unsqueeze(-1)  # no 0 / 0 in padding rows
    union = box_area(boxes).index_select(1, targets.image_index).add_(area).sub_(intersection)
    return intersection.div_(union)


def _class_probability(logits: Tensor, targets: Targets) -> Tensor:
    """(2, T, A) probability of each object's class at all anchors of its image."""
    return logits.transpose(-1, -2)[:, targets.image_index, targets.classes].sigmoid_()


def _settle_conflicts(taken: Tensor, score: Tensor, slot: Tensor, row: Tensor, slots: int) -> Tensor:
    """Leave each anchor with the object of the largest score, among equals with the lowest row.

    Args:
        taken: (2, T, K) bool, the object took the anchor.
        score: (2, T, K) metric.
        slot: (2 * T * K,) flat position of the anchor in (2, B, A).
        row: (2, T, K) the object's row.
        slots: 2 * B * A.

    Returns:
        (2, T, K) bool.
    """
    bids = torch.where(taken, score, -1.0).flatten()
    best = bids.new_full((slots,), -1.0).scatter_reduce_(0, slot, bids, "amax")
    taken = taken & ~(score < best[slot].view_as(score))
    last = row.shape[1]
    claims = torch.where(taken, row, last).flatten()
    first = claims.new_full((slots,), last).scatter_reduce_(0, slot, claims, "amin")
    return taken & (row == first[slot].view_as(row))


def _weights(taken: Tensor, score: Tensor, quality: Tensor) -> Tensor:
    """(2, T, K) ``t * max u / max t``, 0 where nothing is taken.

    t is a sixth power: only the smallest normal number may guard its maximum, a usual epsilon would erase early
    weights.
    """
    score = torch.where(taken, score, 0.0)
    best_score = score.amax(-1, keepdim=True).clamp(min=torch.finfo(score.dtype).tiny)
    best_quality = torch.where(taken, quality, 0.0).amax(-1, keepdim=True)
    return score * (best_quality / best_score)
