"""Boxes: overlap, complete IoU and the two encodings.

``xyxy`` are corners in pixels. ``ltrb`` are the distances left, top, right and bottom from a point that two boxes
share (an anchor's centre, in units of its stride): overlap and enclosure need no corners then, and small numbers stay
exact.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_EPS = 1e-9  # keeps 0 / 0 of two empty boxes at 0; far below any real area, in pixels or strides
ASPECT_FLOOR = 0.05  # a side below this counts as this in the aspect term of CIoU, in the unit of the boxes


def ltrb_to_xyxy(distances: Tensor, origins: Tensor, signed_strides: Tensor) -> Tensor:
    """Decode distances to corners.

    Args:
        distances: (..., A, 4) ltrb in stride units.
        origins: (A, 4) x, y, x, y of the anchor centres in pixels (``Anchors.origins``).
        signed_strides: (A, 4) -s, -s, s, s in pixels (``Anchors.signed_strides``).

    Returns:
        (..., A, 4) xyxy pixels; a negative sum of opposite distances gives an inverted box.
    """
    return torch.addcmul(origins, distances, signed_strides)


def xyxy_to_ltrb(boxes: Tensor, origins: Tensor, signed_strides: Tensor) -> Tensor:
    """Encode corners as distances, the inverse of :func:`ltrb_to_xyxy`.

    Args:
        boxes: (..., A, 4) xyxy pixels.
        origins: (A, 4) x, y, x, y of the anchor centres in pixels.
        signed_strides: (A, 4) -s, -s, s, s in pixels.

    Returns:
        (..., A, 4) ltrb in stride units.
    """
    return (boxes - origins) / signed_strides


def box_area(boxes: Tensor) -> Tensor:
    """Area of boxes; an inverted or empty box has none.

    Args:
        boxes: (..., 4) xyxy.

    Returns:
        (...) square units, >= 0.
    """
    low, high = boxes.chunk(2, -1)
    width, height = (high - low).clamp(min=0).unbind(-1)
    return width * height


def iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Intersection over union, element by element.

    Args:
        boxes: (..., 4) xyxy.
        others: (..., 4) xyxy, same unit, broadcastable.

    Returns:
        (...) 0 .. 1; 0 where either box is empty.
    """
    low, high = boxes.chunk(2, -1)
    other_low, other_high = others.chunk(2, -1)
    width, height = (torch.minimum(high, other_high) - torch.maximum(low, other_low)).clamp(min=0).unbind(-1)
    intersection = width * height
    union = box_area(boxes) + box_area(others) - intersection
    return intersection / union.clamp(min=_EPS)


def pairwise_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Intersection over union of every box with every other.

    Args:
        boxes: (..., N, 4) xyxy.
        others: (..., M, 4) xyxy, same unit.

    Returns:
        (..., N, M) 0 .. 1.
    """
    return iou(boxes.unsqueeze(-2), others.unsqueeze(-3))


def ciou_ltrb(distances: Tensor, targets: Tensor) -> Tensor:
    """Complete IoU (arXiv 1911.08287) of boxes around a common point, element by element.

    ``IoU - rho^2 / c^2 - a v``: rho is the distance of the centres, c the diagonal of the enclosing box, ``v = 4 /
    pi^2 (atan2(w, h) - atan2(w_t, h_t))^2`` and ``a = v / (1 - IoU + v)`` a constant for the gradient. With atan2 and
    sides of at least ``ASPECT_FLOOR`` the gradient of v stays bounded on collapsed boxes, where atan(w / h) reaches
    1e5.

    Args:
        distances: (..., 4) ltrb of the predictions; may be inverted (IoU 0).
        targets: (..., 4) ltrb of the objects from the same points, same unit.

    Returns:
        (...) at most 1, which two equal boxes reach.
    """
    low, high = distances.chunk(2, -1)
    target_low, target_high = targets.chunk(2, -1)
    inner_low, inner_high = torch.minimum(distances, targets).chunk(2, -1)
    side, target_side = high + low, target_high + target_low
    overlap = inner_high + inner_low  # negative: a gap
    enclosing = side + target_side - overlap
    width, height = overlap.clamp(min=0).unbind(-1)
    intersection = width * height
    area_width, area_height = side.clamp(min=0).unbind(-1)
    target_width, target_height = target_side.unbind(-1)
    union = area_width * area_height + (target_width * target_height + _EPS) - intersection
    overlap_ratio = intersection / union
    offset = (high - low) - (target_high - target_low)  # twice the distance of the centres
    distance = offset.square().sum(-1) / (4 * enclosing.square().sum(-1) + _EPS)
    angle = torch.atan2(*side.clamp(min=ASPECT_FLOOR).unbind(-1))
    target_angle = torch.atan2(*target_side.clamp(min=ASPECT_FLOOR).unbind(-1))
    aspect = (angle - target_angle).square() * (4 / math.pi**2)
    with torch.no_grad():
        aspect_weight = aspect / (1 - overlap_ratio + aspect + _EPS)
    return overlap_ratio - distance - aspect_weight * aspect
