"""How far rings reach inside of a canvas."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.ops.rasters import next_points


def clipped_envelopes(points: NDArray[np.float64], offsets: NDArray[np.int64], size: float) -> NDArray[np.float64]:
    """Smallest upright box around what of each ring, with its inside, lies on the canvas.

    It is spanned by the parts of the edges on the canvas (Liang and Barsky's clipping, all edges at once) and by the
    corners of the canvas that lie in the ring.

    Args:
        points: (P, 2) x, y in pixels.
        offsets: (R + 1,) first point of each ring; each has at least one.
        size: side of the canvas in pixels.

    Returns:
        (R, 4) xyxy; (inf, inf, -inf, -inf) where nothing does.
    """
    if len(offsets) == 1:
        return np.zeros((0, 4))
    starts = offsets[:-1]
    ends = points[next_points(offsets)]
    along = ends - points
    level = along == 0  # never crosses the lines of that axis
    step = np.where(level, 1.0, along)
    to_low, to_high = -points / step, (size - points) / step
    between = (points >= 0) & (points <= size)
    enter = np.where(level, np.where(between, -np.inf, np.inf), np.minimum(to_low, to_high)).max(axis=1).clip(0)
    leave = np.where(level, np.inf, np.maximum(to_low, to_high)).min(axis=1).clip(max=1)
    there = (enter <= leave)[:, None]
    first, last = (points + along * np.where(there, share[:, None], 0) for share in (enter, leave))
    low = np.where(there, np.minimum(first, last), np.inf)
    high = np.where(there, np.maximum(first, last), -np.inf)
    low, high = np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)
    for corner in np.array([[0.0, 0.0], [size, 0.0], [0.0, size], [size, size]]):
        inside = _contain(points, ends, starts, corner)[:, None]
        low = np.where(inside, np.minimum(low, corner), low)
        high = np.where(inside, np.maximum(high, corner), high)
    return np.concatenate([low, high], axis=1)


def _contain(
    begins: NDArray[np.float64], ends: NDArray[np.float64], starts: NDArray[np.int64], place: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """(R,) whether a place lies in each ring: a line to its left meets an odd number of edges."""
    (x0, y0), (x1, y1) = begins.T, ends.T
    x, y = place
    crosses = (np.minimum(y0, y1) <= y) & (y < np.maximum(y0, y1))
    side = (x - x0) * (y1 - y0) - (y - y0) * (x1 - x0)
    left = np.where(y1 > y0, side >= 0, side <= 0)
    odd: NDArray[np.bool_] = np.add.reduceat((crosses & left).astype(np.int64), starts) % 2 == 1
    return odd
