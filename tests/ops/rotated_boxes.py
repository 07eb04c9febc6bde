"""Rotated boxes for tests, and an independent way from them to polygons."""

from __future__ import annotations

import cmath

import numpy as np
import shapely
from hypothesis import strategies as st
from numpy.typing import NDArray

Rotated = tuple[float, float, float, float, float]

coordinates = st.floats(-50, 50)
sides = st.floats(0.5, 60)
angles = st.floats(-7, 7) | st.integers(-8, 8).map(lambda eighth: eighth * cmath.pi / 4)
rotated_boxes: st.SearchStrategy[Rotated] = st.tuples(coordinates, coordinates, sides, sides, angles)


def vertices(box: Rotated) -> list[tuple[float, float]]:
    """Corners by rotation of complex numbers, from the top left of the upright box, clockwise where y points down."""
    x, y, width, height, theta = box
    turned = [
        complex(x, y) + complex(a * width, b * height) / 2 * cmath.exp(1j * theta)
        for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))
    ]
    return [(z.real, z.imag) for z in turned]


def polygon(box: Rotated) -> shapely.Polygon:
    return shapely.Polygon(vertices(box))


def polygon_iou(first: Rotated, second: Rotated) -> float:
    """Overlap of the polygons, the first one's centre moved to the origin, where shapely is most exact."""
    a = polygon((0.0, 0.0, *first[2:]))
    b = polygon((second[0] - first[0], second[1] - first[1], *second[2:]))
    shared = a.intersection(b).area
    return float(shared / (a.area + b.area - shared))


def equivalents(box: Rotated, turns: int = 2) -> list[Rotated]:
    """The same rectangle in other encodings, up to that many half turns away."""
    x, y, width, height, theta = box
    same = []
    for quarter in range(-2 * turns, 2 * turns + 1):
        first, second = (height, width) if quarter % 2 else (width, height)
        same.append((x, y, first, second, theta + quarter * cmath.pi / 2))
    return same


def random_boxes(rng: np.random.Generator, count: int, *, span: float = 100.0) -> NDArray[np.float64]:
    """(count, 5) boxes with sides of 4 to 40 at any angle."""
    low, high = [0, 0, 4, 4, -4], [span, span, 40, 40, 4]
    return rng.uniform(low, high, (count, 5))
