"""Class-wise greedy non-maximum suppression of a whole batch, static in shape and without a read of the device."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lucid_yolo.ops.boxes import box_area


class Kept(NamedTuple):
    """Survivors of each image, best first.

    Attributes:
        indices: (B, K) int64 positions among the candidates; arbitrary in padding.
        valid: (B, K) bool, False in padding.
    """

    indices: Tensor
    valid: Tensor


@torch.no_grad()
def batched_nms(
    boxes: Tensor, scores: Tensor, classes: Tensor, *, iou: float, confidence: float = 0.0, limit: int = 300
) -> Kept:
    """Keep the best box, drop boxes of its class that overlap it by more than ``iou``, repeat until ``limit`` are kept.

    Exact: no cap on the candidates and no offset of the coordinates by class. Equal scores rank by position. The loop
    runs over what is kept, all images at once, so that its cost is limit * A an image and not A * A.

    Args:
        boxes: (B, A, 4) xyxy.
        scores: (B, A).
        classes: (B, A) labels.
        iou: boxes of one class overlap at most by this.
        confidence: candidates score more than this.
        limit: most boxes kept of an image.

    Returns:
        (B, K) survivors, ``K = min(limit, A)``.
    """
    batch, count = scores.shape
    ranked, order = scores.sort(dim=1, descending=True, stable=True)
    corners = torch.take_along_dim(boxes, order.unsqueeze(-1), 1).transpose(1, 2).contiguous()  # (B, 4, A): planes
    area = box_area(boxes).gather(1, order)
    label = classes.gather(1, order)
    # Every living candidate has a key of its own, the best one the largest; a dead one has 0.
    place = torch.arange(count, 0, -1, device=scores.device)
    keys = torch.where(ranked > confidence, place, 0)
    kept = []
    for _ in range(min(limit, count)):
        key = keys.amax(1, keepdim=True)
        if not key.is_cuda and not key.any():  # free on the host; a device would have to be waited for
            break
        kept.append(key)
        position = (count - key).clamp(max=count - 1)
        best = corners.gather(2, position.unsqueeze(1).expand(batch, 4, 1))
        inner = (
            torch.minimum(corners[:, 2:], best[:, 2:]).sub_(torch.maximum(corners[:, :2], best[:, :2])).clamp_(min=0)
        )
        intersection = inner[:, 0] * inner[:, 1]
        union = area + area.gather(1, position) - intersection
        overlaps = intersection / union > iou
        dead = (overlaps & (label == label.gather(1, position))) | (place == key)
        keys.masked_fill_(dead, 0)
    padding = keys.new_zeros(batch, min(limit, count) - len(kept))
    key = torch.cat((*kept, padding), dim=1)
    return Kept(order.gather(1, (count - key).clamp(max=count - 1)), key > 0)
