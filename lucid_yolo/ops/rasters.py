"""Which cells of a grid lie inside polygons, exactly: no drawing library is involved, whose outlines take cells too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a grid that a ring reaches.

    Attributes:
        top: first row.
        left: first column.
        inside: (h, w) bool, of the cells from there on.
    """

    top: int
    left: int
    inside: NDArray[np.bool_]


def fill_rings(points: NDArray[np.float64], offsets: NDArray[np.int64], side: int) -> Iterator[Window]:
    """Fill rings: a cell is inside when its centre is, by the even-odd rule.

    A centre on an edge belongs to what lies to the right of the edge and below it, so that polygons with a common edge
    share no cell. All edges are followed at once: where an edge crosses the line through the centres of a row, the
    first cell to its right changes sides, and a running parity over each window does the rest.

    Args:
        points: (P, 2) x, y in cells; the centre of the first cell is (0.5, 0.5). Points may lie outside of the grid.
        offsets: (R + 1,) first point of each ring; each has at least one.
        side: the grid has so many rows and columns.

    Returns:
        One window a ring, in their order; empty where a ring reaches no centre.
    """
    if len(offsets) == 1:
        return
    starts, lengths = offsets[:-1], np.diff(offsets)
    after = next_points(offsets)
    first = _cells_before(points, side)
    left, top = np.minimum.reduceat(first, starts).T
    right, bottom = np.maximum.reduceat(first, starts).T
    stride = right - left + 1  # one more than the columns: an edge may lie behind the last one
    begins = np.concatenate([[0], np.cumsum(stride * (bottom - top))])

    x, y = points.T
    begin, end = np.minimum(first[:, 1], first[after, 1]), np.maximum(first[:, 1], first[after, 1])
    crossed = end - begin
    edge = np.repeat(np.arange(len(points)), crossed)
    row = np.arange(len(edge)) - np.repeat(np.cumsum(crossed) - crossed - begin, crossed)
    ring = np.repeat(np.arange(len(lengths)), lengths)[edge]
    slope = (x[after[edge]] - x[edge]) / (y[after[edge]] - y[edge])
    at = x[edge] + (row + 0.5 - y[edge]) * slope
    column = np.ceil(at - 0.5).clip(left[ring], right[ring]).astype(np.int64)

    changes = np.bincount(begins[ring] + (row - top[ring]) * stride[ring] + column - left[ring], minlength=begins[-1])
    parity = np.bitwise_xor.accumulate((changes & 1).astype(np.bool_))
    for i, (width, height) in enumerate(zip(stride.tolist(), (bottom - top).tolist(), strict=True)):
        window = parity[begins[i] : begins[i + 1]].reshape(height, width)
        yield Window(int(top[i]), int(left[i]), window[:, :-1])


def next_points(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """(P,) position of the point that follows each one on its ring.

    Args:
        offsets: (R + 1,) first point of each ring.
    """
    after = np.arange(1, offsets[-1] + 1)
    after[offsets[1:] - 1] = offsets[:-1]
    return after


def _cells_before(points: NDArray[np.float64], side: int) -> NDArray[np.int64]:
    """(P, 2) how many columns and rows of the grid have their centre before each point."""
    return np.ceil(points - 0.5).clip(0, side).astype(np.int64)
