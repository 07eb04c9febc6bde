"""Rotated boxes on the host: encodings and corners in numpy, for readers, geometry and evaluation.

A rotated box is ``cx, cy, w, h, theta`` in pixels and radians; theta turns +x toward +y, clockwise on the screen.
``ops.rotated`` has the same in torch.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

ROUNDING = 4e-6
"""Sides that differ by less than this share are equal, and an angle that is this little below the end of the range
(radians) counts as its start: a few roundings of float32, in which labels travel."""

_SIGNS = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]])
_PAIRS = np.array(list(combinations(range(4), 2)))


def canonical(boxes: NDArray[np.floating]) -> NDArray[np.float64]:
    """Choose one encoding of each rectangle: w >= h, theta in [-pi/4, 3 pi/4), of a square in [-pi/4, pi/4).

    Args:
        boxes: (..., 5) sides >= 0, any angle.

    Returns:
        (..., 5) float64, the same rectangles.
    """
    center_x, center_y, width, height, theta = np.moveaxis(np.asarray(boxes, np.float64), -1, 0)
    long, short = np.maximum(width, height), np.minimum(width, height)
    turned = np.where(width < height, 1.0, 0.0)  # quarter turns
    period = np.where(long - short <= ROUNDING * long, 1.0, 2.0)
    excess = (theta + (math.pi / 4 + ROUNDING)) / (math.pi / 2) + turned
    quarters = turned - period * np.floor(excess / period)
    angle = np.maximum(theta + quarters * (math.pi / 2), -math.pi / 4)  # from what only rounding had left below
    return np.stack((center_x, center_y, long, short, angle), axis=-1)


def corners(boxes: NDArray[np.floating]) -> NDArray[np.float64]:
    """Corners of rotated boxes.

    Args:
        boxes: (..., 5) any encoding.

    Returns:
        (..., 4, 2) float64 x, y in pixels, clockwise on the screen, from the top left of the box before it is rotated.
    """
    values = np.asarray(boxes, np.float64)
    offsets = _SIGNS * values[..., None, 2:4]
    cos, sin = np.cos(values[..., 4:]), np.sin(values[..., 4:])
    along, across = offsets[..., 0], offsets[..., 1]
    turned = np.stack((along * cos - across * sin, along * sin + across * cos), axis=-1)
    return np.asarray(values[..., None, :2] + turned, np.float64)


def envelopes(boxes: NDArray[np.floating]) -> NDArray[np.float64]:
    """Axis-aligned boxes around rotated boxes.

    Args:
        boxes: (..., 5) any encoding, sides >= 0.

    Returns:
        (..., 4) float64 xyxy of the corners.
    """
    center_x, center_y, width, height, theta = np.moveaxis(np.asarray(boxes, np.float64), -1, 0)
    cos, sin = np.abs(np.cos(theta)) / 2, np.abs(np.sin(theta)) / 2
    reach_x, reach_y = width * cos + height * sin, width * sin + height * cos
    return np.stack((center_x - reach_x, center_y - reach_y, center_x + reach_x, center_y + reach_y), axis=-1)


def from_corners(quadrilaterals: NDArray[np.floating]) -> NDArray[np.float64]:
    """Rotated boxes around quadrilaterals: the rectangles of least area, exact where the four points are a rectangle.

    A side of the least rectangle lies along a side of the convex hull, and each of those joins two of the points: the
    six pairs are tried. The order of the points makes no difference, not even in the last bit.

    Args:
        quadrilaterals: (N, 4, 2) finite x, y in pixels, in any order, not necessarily convex.

    Returns:
        (N, 5) float64 canonical boxes. Points on a line have h = 0, equal points w = h = theta = 0.
    """
    points = np.asarray(quadrilaterals, np.float64).reshape(-1, 4, 2)
    order = np.lexsort((points[..., 1], points[..., 0]), axis=-1)
    points = np.take_along_axis(points, order[..., None], axis=1)
    origin = points[:, :1]
    points = points - origin  # small numbers: nothing is lost far from the corner of a large picture
    sides = points[:, _PAIRS[:, 1]] - points[:, _PAIRS[:, 0]]  # (N, 6, 2)
    length = np.hypot(sides[..., 0], sides[..., 1])[..., None]
    axis = np.divide(sides, length, out=np.broadcast_to([1.0, 0.0], sides.shape).copy(), where=length > 0)
    normal = np.stack((-axis[..., 1], axis[..., 0]), axis=-1)
    frames = np.stack((axis, normal), axis=2)  # (N, 6, 2, 2): a direction a row
    projected = np.einsum("nfdi,npi->nfdp", frames, points)
    low, high = projected.min(axis=-1), projected.max(axis=-1)  # (N, 6, 2)
    best = (high - low).prod(axis=-1).argmin(axis=-1)
    rows = np.arange(len(points))
    low, high, frame = low[rows, best], high[rows, best], frames[rows, best]
    center = np.einsum("nd,ndi->ni", (low + high) / 2, frame) + origin[:, 0]
    angle = np.arctan2(frame[:, 0, 1], frame[:, 0, 0])
    return canonical(np.concatenate((center, high - low, angle[:, None]), axis=-1))
