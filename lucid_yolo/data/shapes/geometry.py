"""Outlines of the shapes: polygons with two decimals, so that the label is exactly what is drawn.

Rounding also makes them independent of the last bit of a platform's sine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]

KEYPOINT_NAMES = ("center", "head", "tail")
KEYPOINT_SKELETON = ((2, 1), (1, 3))  # one-based, as COCO has it
_HEAD = (0.0, -0.45)
_TAIL = (0.0, 0.35)
_DECIMALS = 2


def _ellipse() -> list[tuple[float, float]]:
    return _ring(64, 1.0, 0.0)


def _rectangle() -> list[tuple[float, float]]:
    side = math.sqrt(0.5)
    return [(-side, -side), (side, -side), (side, side), (-side, side)]


def _triangle() -> list[tuple[float, float]]:
    return _ring(3, 1.0, 0.0)


def _star() -> list[tuple[float, float]]:
    outer, inner = _ring(5, 1.0, 0.0), _ring(5, 0.5, 0.5)
    return [point for pair in zip(outer, inner, strict=True) for point in pair]


def _ring(count: int, radius: float, shift: float) -> list[tuple[float, float]]:
    """Points on a circle, the first one at the top."""
    angles = [2.0 * math.pi * (i + shift) / count for i in range(count)]
    return [(radius * math.sin(a), -radius * math.cos(a)) for a in angles]


_OUTLINES: dict[str, Callable[[], list[tuple[float, float]]]] = {
    "ellipse": _ellipse,
    "rectangle": _rectangle,
    "triangle": _triangle,
    "star": _star,
}
CLASS_NAMES = tuple(_OUTLINES)


@dataclass(frozen=True, slots=True)
class Shape:
    """One object, in pixels; a point (x, y) lies on the continuous plane whose pixel (i, j) covers [j, j+1) x [i, i+1).

    Attributes:
        label: position in ``CLASS_NAMES``.
        outline: (P, 2) polygon.
        corners: (4, 2) oriented box, clockwise on the picture, from the object's own top left.
        keypoints: (3, 2) centre, head and tail.
    """

    label: int
    outline: Points
    corners: Points
    keypoints: Points

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Tight xyxy box of the outline."""
        (x1, y1), (x2, y2) = self.outline.min(axis=0), self.outline.max(axis=0)
        return float(x1), float(y1), float(x2), float(y2)

    @property
    def area(self) -> float:
        """Area of the outline (shoelace formula)."""
        x, y = self.outline.T
        return float(0.5 * abs((x * np.roll(y, -1) - np.roll(x, -1) * y).sum()))


def make_shape(label: int, *, center: tuple[float, float], radius: float, aspect: float, angle: float) -> Shape:
    """Place a shape.

    Args:
        label: position in ``CLASS_NAMES``.
        center: x and y of the centre in pixels.
        radius: from the centre to the farthest corner along the object's own y axis, in pixels.
        aspect: factor on the object's own x axis, at most 1.
        angle: clockwise turn in radians.
    """
    unit = np.array(_OUTLINES[CLASS_NAMES[label]]())
    (left, top), (right, bottom) = unit.min(axis=0), unit.max(axis=0)
    corners = np.array([(left, top), (right, top), (right, bottom), (left, bottom)])
    keypoints = np.array([(0.0, 0.0), _HEAD, _TAIL])
    cos, sin = math.cos(angle), math.sin(angle)

    def placed(points: Points) -> Points:
        x, y = radius * aspect * points[:, 0], radius * points[:, 1]
        return np.stack((center[0] + x * cos - y * sin, center[1] + x * sin + y * cos), axis=1).round(_DECIMALS)

    return Shape(label, placed(unit), placed(corners), placed(keypoints))


def disc(center: tuple[float, float], radius: float) -> Points:
    """(16, 2) outline of a small disc."""
    return (np.array(_ring(16, radius, 0.0)) + center).round(_DECIMALS)


def bar(start: tuple[float, float], end: tuple[float, float], width: float) -> Points:
    """(4, 2) outline of a line with a width."""
    (x1, y1), (x2, y2) = start, end
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    dx, dy = -(y2 - y1) / length * width / 2, (x2 - x1) / length * width / 2
    return np.array([(x1 + dx, y1 + dy), (x2 + dx, y2 + dy), (x2 - dx, y2 - dy), (x1 - dx, y1 - dy)]).round(_DECIMALS)
