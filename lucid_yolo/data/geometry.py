"""One affine warp for pixels and for every kind of label.

Coordinates are continuous, for boxes and pictures alike: pixel ``i`` covers ``[i, i + 1)``, its centre is ``i + 0.5``.
A matrix is (2, 3) float64 and maps a picture's coordinates to the canvas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import cv2
import numpy as np
from numpy.typing import NDArray

from lucid_yolo.ops.letterbox import PAD_VALUE, Letterbox, letterbox_for

Matrix = NDArray[np.float64]

MIN_SIDE = 2.0
"""Pixels: an object with a shorter visible side is dropped."""
MIN_VISIBLE = 0.1
"""Share of an object's area that must stay on the canvas."""


class PointKind(StrEnum):
    """What the points of an object are."""

    BOX = "box"  # the four corners


@dataclass(frozen=True, slots=True)
class PointSet:
    """Labels of a picture as points: every kind of label goes through the same warp.

    Points of object ``i`` are the rows ``offsets[i]:offsets[i + 1]``; an object has at least one point.

    Attributes:
        xy: (P, 2) float64 pixels.
        offsets: (N + 1,) int64.
        kind: what the points mean.
    """

    xy: NDArray[np.float64]
    offsets: NDArray[np.int64]
    kind: PointKind

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def warped(self, matrix: Matrix) -> PointSet:
        """Map every point."""
        return PointSet(self.xy @ matrix[:, :2].T + matrix[:, 2], self.offsets, self.kind)

    def envelopes(self) -> NDArray[np.float64]:
        """Smallest upright box around each object: (N, 4) xyxy."""
        if not len(self):
            return np.zeros((0, 4))
        starts = self.offsets[:-1]
        low, high = np.minimum.reduceat(self.xy, starts), np.maximum.reduceat(self.xy, starts)
        return np.concatenate([low, high], axis=1)


def boxes_to_points(boxes: NDArray[np.floating]) -> PointSet:
    """Corners of boxes, clockwise from the upper left.

    Args:
        boxes: (N, 4) xyxy.
    """
    corners = np.empty((len(boxes), 4, 2))
    corners[:, 0::3, 0] = boxes[:, 0:1]
    corners[:, 1:3, 0] = boxes[:, 2:3]
    corners[:, 0:2, 1] = boxes[:, 1:2]
    corners[:, 2:4, 1] = boxes[:, 3:4]
    return PointSet(corners.reshape(-1, 2), np.arange(0, 4 * len(boxes) + 1, 4), PointKind.BOX)


def visible(envelopes: NDArray[np.float64], size: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Clip boxes to the canvas and say which are still worth learning.

    Args:
        envelopes: (N, 4) xyxy canvas pixels.
        size: side of the canvas.

    Returns:
        (N, 4) clipped boxes, and (N,) whether both clipped sides have at least `MIN_SIDE` pixels and at least
        `MIN_VISIBLE` of the area is left.
    """
    clipped = envelopes.clip(0, size)
    sides = clipped[:, 2:] - clipped[:, :2]
    full = envelopes[:, 2:] - envelopes[:, :2]
    keep = (sides >= MIN_SIDE).all(axis=1) & (sides.prod(axis=1) >= MIN_VISIBLE * full.prod(axis=1))
    return clipped, keep


def inverse(matrix: Matrix) -> Matrix:
    """Return the map that undoes ``matrix``."""
    linear = np.linalg.inv(matrix[:, :2])
    return np.column_stack([linear, -linear @ matrix[:, 2]])


def scaled_first(matrix: Matrix, x: float, y: float) -> Matrix:
    """Return the map that scales by (x, y) and then applies ``matrix``."""
    scaled: Matrix = matrix * np.array([x, y, 1.0])
    return scaled


def moved_first(matrix: Matrix, x: float, y: float) -> Matrix:
    """Return the map that moves by (x, y) and then applies ``matrix``."""
    moved = matrix.copy()
    moved[:, 2] += matrix[:, 0] * x + matrix[:, 1] * y
    return moved


def picture_envelope(matrix: Matrix, width: int, height: int) -> tuple[float, float, float, float]:
    """Smallest upright box, xyxy, around a picture that ``matrix`` places."""
    (a, b, x), (c, d, y) = matrix.tolist()
    return (
        x + min(0.0, a * width) + min(0.0, b * height),
        y + min(0.0, c * width) + min(0.0, d * height),
        x + max(0.0, a * width) + max(0.0, b * height),
        y + max(0.0, c * width) + max(0.0, d * height),
    )


def linear_part(*, degrees: float, scale: float, shear_x: float, shear_y: float) -> NDArray[np.float64]:
    """Rotation times scale times shear.

    Args:
        degrees: turns +x toward +y (clockwise on the screen).
        scale: above 1 enlarges.
        shear_x: degrees.
        shear_y: degrees.

    Returns:
        (2, 2) float64.
    """
    angle = math.radians(degrees)
    rotation = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    shear = np.array([[1.0, math.tan(math.radians(shear_x))], [math.tan(math.radians(shear_y)), 1.0]])
    linear: NDArray[np.float64] = rotation @ shear * scale
    return linear


def paste(canvas: NDArray[np.uint8], picture: NDArray[np.uint8], matrix: Matrix) -> None:
    """Warp a picture into a canvas, bilinearly, touching only the canvas pixels whose centres it covers.

    Pictures that share an edge therefore divide the canvas between them without gap or overlap.

    Args:
        canvas: (S, S, 3) uint8, written in place.
        picture: (H, W, 3) uint8.
        matrix: picture coordinates to canvas coordinates.
    """
    height, width = picture.shape[:2]
    edges = picture_envelope(matrix, width, height)
    left, top, right, bottom = (min(max(math.ceil(edge - 0.5), 0), len(canvas)) for edge in edges)
    if left >= right or top >= bottom:
        return
    back = moved_first(inverse(matrix), left, top)
    centred = moved_first(back, 0.5, 0.5)  # OpenCV counts from pixel centres, on both sides
    centred[:, 2] -= 0.5
    region = canvas[top:bottom, left:right]
    upright = matrix[0, 1] == 0 and matrix[1, 0] == 0
    warped = cv2.warpAffine(
        picture,
        centred,
        (right - left, bottom - top),
        dst=region if upright else None,
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_REPLICATE,
    )
    if not upright:
        np.copyto(region, warped, where=_covered(back, region.shape[:2], (width, height))[..., None])


def _covered(back: Matrix, region: tuple[int, int], size: tuple[int, int]) -> NDArray[np.bool_]:
    """Which pixels of a region, (rows, columns), have their centre inside a picture of ``size`` (width, height)."""
    rows, columns = (np.arange(count, dtype=np.float64) + 0.5 for count in region)
    inside = np.ones(region, np.bool_)
    for axis in range(2):
        position = back[axis, 0] * columns[None] + (back[axis, 1] * rows + back[axis, 2])[:, None]
        inside &= (position >= 0) & (position < size[axis])
    return inside


def blank(size: int) -> NDArray[np.uint8]:
    """Return an empty canvas, (S, S, 3) uint8."""
    return np.full((size, size, 3), PAD_VALUE, np.uint8)


def resized(picture: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    """Scale a picture with one interpolation: area averages where it shrinks, bilinear where it grows.

    Returns:
        (height, width, 3) uint8; the picture itself where it has that size already.
    """
    if picture.shape[:2] == (height, width):
        return picture
    shrinks = width < picture.shape[1] or height < picture.shape[0]
    scaled = cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
    return scaled.view(np.uint8)


def letterboxed(picture: NDArray[np.uint8], image_size: int) -> tuple[NDArray[np.uint8], Letterbox]:
    """Scale a picture to the canvas and centre it.

    Args:
        picture: (H, W, 3) uint8.
        image_size: side of the canvas.

    Returns:
        (S, S, 3) uint8 canvas, and where the picture lies on it.
    """
    box = letterbox_for(picture.shape[1], picture.shape[0], image_size)
    canvas = blank(image_size)
    left, top = int(box.pad_x), int(box.pad_y)
    region = canvas[top : top + box.scaled_height, left : left + box.scaled_width]
    region[:] = resized(picture, box.scaled_width, box.scaled_height)
    return canvas, box
