"""Rotated boxes in torch: encodings, corners, overlap of their Gaussians and the penalty of an angle.

A rotated box is ``cx, cy, w, h, theta`` in pixels and radians; theta turns +x toward +y, clockwise on the screen.
Several encodings are the same rectangle (a half turn, a quarter turn with the sides exchanged): overlap and penalty are
equal for all of them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lucid_yolo.ops.rotated_np import ROUNDING

SIDE_FLOOR = 1e-4  # a side below this counts as this where it is divided by, in the unit of the boxes
ASPECT_SPREAD = 3.0  # lambda of the angle penalty: the best of Table 11 of arXiv 2606.03748


def canonical(boxes: Tensor) -> Tensor:
    """Choose one encoding of each rectangle: w >= h, theta in [-pi/4, 3 pi/4), of a square in [-pi/4, pi/4).

    Args:
        boxes: (..., 5) sides >= 0, any angle.

    Returns:
        (..., 5) the same rectangles, differentiable away from the ends of the range.
    """
    center_x, center_y, width, height, theta = boxes.unbind(-1)
    swap = width < height
    long, short = torch.where(swap, height, width), torch.where(swap, width, height)
    with torch.no_grad():
        turned = swap.to(boxes.dtype)  # quarter turns
        period = 2.0 - (long - short <= ROUNDING * long).to(boxes.dtype)
        excess = (theta + (math.pi / 4 + ROUNDING)) / (math.pi / 2) + turned
        quarters = turned - period * torch.floor(excess / period)
    angle = (theta + quarters * (math.pi / 2)).clamp(min=-math.pi / 4)  # from what only rounding had left below
    return torch.stack((center_x, center_y, long, short, angle), dim=-1)


def corners(boxes: Tensor) -> Tensor:
    """Corners of rotated boxes.

    Args:
        boxes: (..., 5) any encoding.

    Returns:
        (..., 4, 2) x, y, clockwise on the screen, from the top left of the box before it is rotated.
    """
    center_x, center_y, width, height, theta = boxes.unbind(-1)
    cos, sin = theta.cos() / 2, theta.sin() / 2
    along_x, along_y, across_x, across_y = width * cos, width * sin, -height * sin, height * cos
    x = torch.stack((-along_x - across_x, along_x - across_x, along_x + across_x, across_x - along_x), dim=-1)
    y = torch.stack((-along_y - across_y, along_y - across_y, along_y + across_y, across_y - along_y), dim=-1)
    x, y = x + center_x.unsqueeze(-1), y + center_y.unsqueeze(-1)
    return torch.stack((x, y), dim=-1)


def envelopes(boxes: Tensor) -> Tensor:
    """Axis-aligned boxes around rotated boxes.

    Args:
        boxes: (..., 5) any encoding, sides >= 0.

    Returns:
        (..., 4) xyxy of the corners.
    """
    center_x, center_y, width, height, theta = boxes.unbind(-1)
    cos, sin = theta.cos().abs() / 2, theta.sin().abs() / 2
    reach_x, reach_y = width * cos + height * sin, width * sin + height * cos
    return torch.stack((center_x - reach_x, center_y - reach_y, center_x + reach_x, center_y + reach_y), dim=-1)


def ltrb_to_rotated(distances: Tensor, angles: Tensor) -> Tensor:
    """Turn boxes around anchors about their own centres.

    Args:
        distances: (..., 4) left, top, right, bottom from the anchor to the box before it is turned, in stride units.
        angles: (...) radians, any.

    Returns:
        (..., 5) centre from the anchor, sides and angle, lengths in stride units; a negative sum of opposite distances
        gives a negative side.
    """
    low, high = distances.chunk(2, -1)
    return torch.cat(((high - low) / 2, high + low, angles.unsqueeze(-1)), dim=-1)


def anchors_to_canvas(boxes: Tensor, centers: Tensor, strides: Tensor) -> Tensor:
    """Bring boxes around anchors to the canvas.

    Args:
        boxes: (..., A, 5) from :func:`ltrb_to_rotated`.
        centers: (A, 2) anchor centres in pixels.
        strides: (A,) pixels.

    Returns:
        (..., A, 5) in pixels of the canvas.
    """
    scale = strides.unsqueeze(-1)
    middle = torch.addcmul(centers, boxes[..., :2], scale)
    return torch.cat((middle, boxes[..., 2:4] * scale, boxes[..., 4:]), dim=-1)


def canvas_to_anchors(boxes: Tensor, centers: Tensor, strides: Tensor) -> Tensor:
    """Describe boxes of the canvas from anchors, the inverse of :func:`anchors_to_canvas`.

    Args:
        boxes: (..., A, 5) in pixels of the canvas.
        centers: (A, 2) anchor centres in pixels.
        strides: (A,) pixels.

    Returns:
        (..., A, 5) centre from the anchor, sides and angle, lengths in stride units.
    """
    scale = strides.unsqueeze(-1)
    return torch.cat(((boxes[..., :2] - centers) / scale, boxes[..., 2:4] / scale, boxes[..., 4:]), dim=-1)


def nearest_encoding(boxes: Tensor, angles: Tensor) -> Tensor:
    """Choose the encoding of each rectangle whose angle is nearest to a given one, at most an eighth turn away.

    Args:
        boxes: (..., 5) any encoding; no gradient goes through the choice.
        angles: (...) radians, any.

    Returns:
        (..., 5) the same rectangles.
    """
    center_x, center_y, width, height, theta = boxes.unbind(-1)
    with torch.no_grad():
        quarters = torch.round((angles - theta) / (math.pi / 2))
        swap = torch.remainder(quarters, 2) != 0
    width, height = torch.where(swap, height, width), torch.where(swap, width, height)
    return torch.stack((center_x, center_y, width, height, theta + quarters * (math.pi / 2)), dim=-1)


def contains(points: Tensor, boxes: Tensor) -> Tensor:
    """Tell which points lie in which boxes, edges included.

    An edge is as thick as rounding: a box that stands at pi/2 has the points of the upright box that it is.

    Args:
        points: (A, 2) x, y.
        boxes: (T, 5) any encoding, sides >= 0, same unit.

    Returns:
        (T, A) bool.
    """
    center_x, center_y, width, height, theta = boxes.unsqueeze(1).unbind(-1)
    x, y = points.unbind(-1)
    x, y = x - center_x, y - center_y
    cos, sin = theta.cos(), theta.sin()
    edge = (width + height) * (4 * torch.finfo(boxes.dtype).eps)
    in_width = (x * cos + y * sin).abs() <= width / 2 + edge
    return in_width & ((y * cos - x * sin).abs() <= height / 2 + edge)


def prob_iou_hellinger(boxes: Tensor, others: Tensor) -> Tensor:
    """Hellinger distance of the Gaussians of two boxes, ``sqrt(1 - exp(-B))``, element by element.

    ProbIoU (arXiv 2106.06072): a box is a Gaussian at its centre with the variances w^2 / 12 and h^2 / 12 along its
    sides, and B the Bhattacharyya distance of two of them. With the covariances S and S' it is ``d^T (S + S')^-1 d / 4
    + log(1 + r) / 2``, ``1 + r = det(S + S') / (4 sqrt(det S det S'))``. Multiplied out,

    ``4 w h w' h' r = (w h - w' h')^2 + cos^2(t - t') (w h' - w' h)^2 + sin^2(t - t') (w w' - h h')^2``

    and the other term is a sum of squares too: nothing cancels, and float32 resolves the distance of boxes that are
    almost equal.

    Args:
        boxes: (..., 5) any encoding; sides below ``SIDE_FLOOR`` count as that.
        others: (..., 5) same unit, broadcastable.

    Returns:
        (...) 0 .. 1, equal for equivalent encodings. Equal boxes have an exact 0 with an exact 0 as gradient.
    """
    x, y, width, height, theta = boxes.unbind(-1)
    other_x, other_y, other_width, other_height, other_theta = others.unbind(-1)
    width, height, other_width, other_height = (
        side.clamp(min=SIDE_FLOOR) for side in (width, height, other_width, other_height)
    )
    areas = (width * height) * (other_width * other_height)
    # w h - w' h' and w h' - w' h by differences of sides: exactly 0 for equal boxes, also where a compiler contracts.
    half_width = (width - other_width) * (height + other_height) / 2
    half_height = (width + other_width) * (height - other_height) / 2
    turn = theta - other_theta
    spread = (
        (half_width + half_height).square()
        + (turn.cos() * (half_width - half_height)).square()
        + (turn.sin() * (width * other_width - height * other_height)).square()
    ) / (4 * areas)
    offset_x, offset_y = x - other_x, y - other_y
    offset = _scaled_offset(offset_x, offset_y, width, height, theta)
    offset = offset + _scaled_offset(offset_x, offset_y, other_width, other_height, other_theta)
    distance = 0.75 * offset / (areas * (1 + spread)) + torch.log1p(spread) / 2
    apart = distance > 0
    hellinger = (-torch.expm1(-torch.where(apart, distance, 1.0))).sqrt()  # the root has no slope at 0
    return torch.where(apart, hellinger, 0.0)


def prob_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Similarity of two boxes, 1 - :func:`prob_iou_hellinger`, element by element.

    Args:
        boxes: (..., 5) any encoding.
        others: (..., 5) same unit, broadcastable.

    Returns:
        (...) 0 .. 1; 1 for equal boxes.
    """
    return 1 - prob_iou_hellinger(boxes, others)


def angle_penalty(predicted: Tensor, target: Tensor, *, spread: float = ASPECT_SPREAD) -> Tensor:
    """Penalty of a wrong angle, ``omega sin^2(2 delta)`` (arXiv 2606.03748, equations 14 and 15), element by element.

    ``omega = exp(-ln^2(w / h) / lambda^2)`` of the target is largest for squares, whose angle overlap hardly teaches.
    The paper wraps delta into [-pi/2, pi/2) first, which changes nothing: the penalty repeats every quarter turn.

    Args:
        predicted: (..., 5) any encoding; only its angle counts.
        target: (..., 5) any encoding, broadcastable; sides below ``SIDE_FLOOR`` count as that.
        spread: lambda, above 0.

    Returns:
        (...) 0 .. 1, equal for equivalent encodings.
    """
    width, height = target[..., 2].clamp(min=SIDE_FLOOR), target[..., 3].clamp(min=SIDE_FLOOR)
    weight = torch.exp(-((width / height).log() / spread).square())
    return weight * torch.sin(2 * (predicted[..., 4] - target[..., 4])).square()


def _scaled_offset(x: Tensor, y: Tensor, width: Tensor, height: Tensor, theta: Tensor) -> Tensor:
    """``d^T adj(S) d`` for the covariance S of a box, times 12."""
    cos, sin = theta.cos(), theta.sin()
    return (height * (x * cos + y * sin)).square() + (width * (y * cos - x * sin)).square()
