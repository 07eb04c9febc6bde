"""Polygons to pixels with elementary arithmetic only: the same on every platform, whatever a drawing library does."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Canvas = NDArray[np.float32]

_SUBROWS = 4  # sample rows a pixel; across a row the coverage is exact


def coverage(outline: NDArray[np.float64], frame: tuple[int, int]) -> tuple[NDArray[np.float64], int, int]:
    """Share of each pixel that a polygon covers.

    Each sample row crosses the outline at some places; a crossing at ``x`` adds its direction to everything right of
    ``x``, so that a running sum over the row gives the coverage (winding rule: the outline must not cross itself).

    Args:
        outline: (P, 2) polygon in pixels.
        frame: height and width of the picture.

    Returns:
        (h, w) coverage in 0 .. 1 of the window that holds the polygon, and the window's left and top pixel.
    """
    left, top = (max(0, math.floor(value)) for value in outline.min(axis=0).tolist())
    x, y = outline.max(axis=0).tolist()
    right, bottom = min(frame[1], math.ceil(x)), min(frame[0], math.ceil(y))
    width, height = right - left, bottom - top
    if width <= 0 or height <= 0:
        return np.zeros((0, 0)), left, top
    start = outline - (left, top)
    following = np.concatenate((start[1:], start[:1]))
    edge, row, direction = _crossings(start[:, 1], height * _SUBROWS)
    slope = (following[:, 0] - start[:, 0])[edge] / (following[:, 1] - start[:, 1])[edge]
    across = start[edge, 0] + ((row + 0.5) / _SUBROWS - start[edge, 1]) * slope
    across = np.minimum(np.maximum(across, 0.0), width)
    column = across.astype(np.int64)
    part = (across - column) * direction
    cells = (row // _SUBROWS) * (width + 2) + column
    deltas = np.bincount(cells, direction - part, height * (width + 2))
    deltas[1:] += np.bincount(cells, part, height * (width + 2))[:-1]
    summed = np.abs(deltas.reshape(height, width + 2).cumsum(axis=1)[:, :width]) / _SUBROWS
    return np.minimum(summed, 1.0), left, top


def _crossings(y: NDArray[np.float64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Edge, sample row and direction (+1 down, -1 up) of each place where an edge crosses a sample row's middle."""
    first = np.minimum(np.maximum(np.ceil(y * _SUBROWS - 0.5), 0), count).astype(np.int64)  # sample row below a corner
    step = np.concatenate((first[1:], first[:1])) - first
    crossed = np.abs(step)
    ends = crossed.cumsum()
    edge = np.repeat(np.arange(len(y)), crossed)
    within = np.arange(len(edge)) - (ends - crossed)[edge]
    lowest = first + np.minimum(step, 0)
    return edge, lowest[edge] + within, np.where(step > 0, 1.0, -1.0)[edge]


def paint(canvas: Canvas, outline: NDArray[np.float64], colour: NDArray[np.float64]) -> None:
    """Fill a polygon on an (H, W, 3) canvas, with soft edges, in place."""
    share, left, top = coverage(outline, (canvas.shape[0], canvas.shape[1]))
    window = canvas[top : top + share.shape[0], left : left + share.shape[1]]
    window += share[..., None].astype(np.float32) * (colour.astype(np.float32) - window)
