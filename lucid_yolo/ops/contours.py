"""Outlines of masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

_TOLERANCE = 0.5  # pixels: how far a simplified outline may lie from the edges of the pixels


@dataclass(frozen=True, slots=True)
class Ring:
    """A closed line.

    Attributes:
        points: (P, 2) float64 x, y in pixels, at least three.
        hole: whether it cuts its inside out of the ring before it.
    """

    points: NDArray[np.float64]
    hole: bool


def outline(mask: NDArray[np.bool_]) -> list[Ring]:
    """Follow the edges of the pixels of a mask, simplified by at most half a pixel.

    OpenCV's contours run through the centres of the outermost pixels, half a pixel inside of the object. Here every
    pixel is written as the three by three points of its corners, sides and centre, so that the contours of these run
    along the edges of the pixels.

    Args:
        mask: (H, W) bool.

    Returns:
        For each piece, the largest first, its outer ring and then the holes in it: who fills the rings one after the
        other, and clears the holes, keeps islands in holes. Pixels that touch at a corner are one piece.
    """
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return []
    top, left = int(rows[0]), int(columns[0])
    part = mask[top : rows[-1] + 1, left : columns[-1] + 1].repeat(2, axis=0).repeat(2, axis=1)
    points = np.zeros((part.shape[0] + 1, part.shape[1] + 1), np.bool_)
    for down in (slice(None, -1), slice(1, None)):
        for across in (slice(None, -1), slice(1, None)):
            points[down, across] |= part
    found, relations = cv2.findContours(points.view(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    parents = relations[0, :, 3].tolist()
    outer = sorted((i for i, parent in enumerate(parents) if parent < 0), key=lambda i: -cv2.contourArea(found[i]))
    order = [i for piece in outer for i in (piece, *(j for j, parent in enumerate(parents) if parent == piece))]
    return [Ring(_simplified(found[i]) / 2 + (left, top), parents[i] >= 0) for i in order]


def _simplified(contour: NDArray[Any]) -> NDArray[np.float64]:
    """(P, 2), the contour itself where too little would be left of it."""
    fewer = cv2.approxPolyDP(contour, 2 * _TOLERANCE, closed=True)
    return (fewer if len(fewer) > 2 else contour).reshape(-1, 2).astype(np.float64)
