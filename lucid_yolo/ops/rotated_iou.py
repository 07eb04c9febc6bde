"""Exact overlap of rotated boxes in numpy, and the suppression that rests on it.

The second box of a pair is moved into the frame of the first, where that one is upright and lies at the origin. By
Green's theorem the area of what they share is the integral of x dy along the border of the second box, with x clipped
to the width of the first and y to its height: a closed form for each of four edges, without a list of vertices and
without a case for boxes that touch or coincide.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.ops.rotated_np import corners, envelopes

_CHUNK = 1 << 16  # pairs at a time: their temporaries stay in the cache


def rotated_iou(boxes: NDArray[np.floating], others: NDArray[np.floating]) -> NDArray[np.float64]:
    """Intersection over union of every box with every other, in float64.

    Args:
        boxes: (N, 5) cx, cy, w, h, theta in pixels and radians, any encoding; a side below 0 counts as 0.
        others: (M, 5) likewise.

    Returns:
        (N, M) 0 .. 1; 0 for two boxes without area, NaN where a number of either box is NaN.
    """
    first, second = _non_negative(boxes), _non_negative(others)
    rows, columns = np.nonzero(_near(envelopes(first).T[:, :, None], envelopes(second).T[:, None, :]))
    result = np.zeros((len(first), len(second)))
    result[np.isnan(first).any(axis=1)] = np.nan
    result[:, np.isnan(second).any(axis=1)] = np.nan
    for start in range(0, len(rows), _CHUNK):
        row, column = rows[start : start + _CHUNK], columns[start : start + _CHUNK]
        result[row, column] = _iou(first[row], second[column])
    return result


def rotated_nms(
    boxes: NDArray[np.floating],
    scores: NDArray[np.floating],
    classes: NDArray[np.integer],
    *,
    iou: float,
    confidence: float = 0.0,
    limit: int = 300,
) -> NDArray[np.int64]:
    """Keep the best box, drop boxes of its class that overlap it by more than ``iou``, repeat until ``limit`` are kept.

    Equal scores rank by position.

    Args:
        boxes: (N, 5) of one image, any encoding.
        scores: (N,).
        classes: (N,) labels.
        iou: boxes of one class overlap at most by this.
        confidence: candidates score more than this.
        limit: most boxes kept, at least 1.

    Returns:
        (K,) positions of the survivors, best first.
    """
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > confidence]
    ranked, labels = _non_negative(boxes[order]), classes[order]
    planes = np.ascontiguousarray(envelopes(ranked).T)
    alive = np.ones(len(order), bool)
    kept: list[int] = []
    for best in range(len(order)):
        if not alive[best]:
            continue
        kept.append(best)
        if len(kept) == limit:
            break
        alive[best] = False
        rivals = np.flatnonzero(alive & (labels == labels[best]) & _near(planes, planes[:, best : best + 1]))
        overlaps = _iou(np.broadcast_to(ranked[best], (len(rivals), 5)), ranked[rivals])
        alive[rivals[overlaps > iou]] = False
    return order[kept]


def area_inside(
    polygons: NDArray[np.floating], half_width: NDArray[np.float64], half_height: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Area of polygons inside upright rectangles about the origin, up to rounding.

    Args:
        polygons: (K, P, 2) corners x, y of polygons whose border does not cross itself.
        half_width: (K,) of the rectangles, or of all of them.
        half_height: (K,) likewise.

    Returns:
        (K,) positive for corners that go clockwise on the screen, else negative.
    """
    count = polygons.shape[1]
    total = np.zeros(len(polygons))
    for corner in range(count):
        (x, y), (run, rise) = polygons[:, corner].T, (polygons[:, (corner + 1) % count] - polygons[:, corner]).T
        low, high = np.clip(y, -half_height, half_height), np.clip(y + rise, -half_height, half_height)
        at_low, at_high = (
            np.clip(np.divide(level - y, rise, out=np.zeros_like(y), where=rise != 0), 0.0, 1.0)
            for level in (low, high)
        )
        total += (high - low) * _mean_clipped(x + at_low * run, x + at_high * run, half_width)
    return total


def _non_negative(boxes: NDArray[np.floating]) -> NDArray[np.float64]:
    result = np.array(boxes, np.float64).reshape(-1, 5)
    np.maximum(result[:, 2:4], 0.0, out=result[:, 2:4])
    return result


def _near(planes: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Envelopes, broadcastable (4, ...) xyxy, overlap: boxes of all others share nothing."""
    return np.asarray(((planes[2:] >= others[:2]) & (planes[:2] <= others[2:])).all(axis=0), np.bool_)


def _iou(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """(K,) IoU of boxes (K, 5) pair by pair."""
    area, other_area = first[:, 2] * first[:, 3], second[:, 2] * second[:, 3]
    shared = np.clip(_shared_area(first, second), 0.0, np.minimum(area, other_area))
    union = area + other_area - shared
    return np.divide(shared, union, out=np.zeros_like(union), where=union > 0)


def _shared_area(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """(K,) area of the intersection of boxes (K, 5) pair by pair, up to rounding."""
    cos, sin = np.cos(first[:, 4]), np.sin(first[:, 4])
    x, y = (second[:, :2] - first[:, :2]).T
    half_width, half_height = first[:, 2] / 2, first[:, 3] / 2
    moved = np.stack((x * cos + y * sin, y * cos - x * sin, second[:, 2], second[:, 3], second[:, 4] - first[:, 4]), 1)
    return area_inside(corners(moved), half_width, half_height)


def _mean_clipped(
    start: NDArray[np.float64], end: NDArray[np.float64], limit: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean of x clipped to -limit .. limit while x runs from start to end."""
    low, high = np.minimum(start, end), np.maximum(start, end)
    run = high - low
    inner_low, inner_high = np.clip(low, -limit, limit), np.clip(high, -limit, limit)
    below = np.clip(-limit - low, 0.0, run)
    above = np.clip(high - limit, 0.0, run)
    weighted = limit * (above - below) + (run - above - below) * (inner_low + inner_high) / 2
    return np.asarray(np.divide(weighted, run, out=inner_low, where=run > 0), np.float64)
