"""Filling of rings against a test of every centre, one at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lucid_yolo.ops.rasters import fill_rings

SIDE = 9
COORDINATES = st.one_of(
    st.floats(-4.0, SIDE + 4.0, width=32), st.integers(-8, 2 * SIDE + 8).map(lambda half: half / 2)
)  # halves lie on centres and on edges of cells
RING = st.lists(st.tuples(COORDINATES, COORDINATES), min_size=1, max_size=9)


def fill(rings: list[list[tuple[float, float]]], side: int = SIDE) -> list[NDArray[np.bool_]]:
    """One whole grid a ring."""
    points = np.array([point for ring in rings for point in ring], np.float64).reshape(-1, 2)
    offsets = np.cumsum([0, *(len(ring) for ring in rings)])
    grids = []
    for window in fill_rings(points, offsets, side):
        height, width = window.inside.shape
        grids.append(np.zeros((side, side), np.bool_))
        grids[-1][window.top : window.top + height, window.left : window.left + width] = window.inside
    return grids


def is_inside(x: float, y: float, ring: list[tuple[float, float]]) -> bool:
    """Whether a ray to the left meets an odd number of edges."""
    odd = False
    for (x0, y0), (x1, y1) in zip(ring, [*ring[1:], ring[0]], strict=True):
        if min(y0, y1) <= y < max(y0, y1) and x0 + (y - y0) * ((x1 - x0) / (y1 - y0)) <= x:
            odd = not odd
    return odd


@settings(deadline=None, max_examples=150)
@given(st.lists(RING, max_size=4))
def test_equals_the_test_of_every_centre(rings: list[list[tuple[float, float]]]) -> None:
    for grid, ring in zip(fill(rings), rings, strict=True):
        for row in range(SIDE):
            for column in range(SIDE):
                assert grid[row, column] == is_inside(column + 0.5, row + 0.5, ring)


def test_polygons_with_a_common_edge_divide_the_grid_between_them() -> None:
    left = [(0.0, 0.0), (7.3, 0.0), (1.5, 9.0), (0.0, 9.0)]
    right = [(7.3, 0.0), (9.0, 0.0), (9.0, 9.0), (1.5, 9.0)]
    one, other = fill([left, right])
    assert (one ^ other).all()
    through_centres = [
        [(0.0, 0.0), (4.5, 0.0), (4.5, 9.0), (0.0, 9.0)],
        [(4.5, 0.0), (9.0, 0.0), (9.0, 9.0), (4.5, 9.0)],
    ]
    assert (np.logical_xor(*fill(through_centres))).all()


def test_a_rectangle_by_hand() -> None:
    (grid,) = fill([[(1.4, 2.6), (4.5, 2.6), (4.5, 5.5), (1.4, 5.5)]])
    expected = np.zeros((SIDE, SIDE), np.bool_)
    expected[3:5, 1:4] = True  # centres 1.5 to 3.5 across (4.5 is the right edge), 3.5 and 4.5 down
    np.testing.assert_array_equal(grid, expected)


def test_what_covers_or_misses_the_whole_grid() -> None:
    around, beside = [(-9.0, -9.0), (30.0, -9.0), (30.0, 30.0), (-9.0, 30.0)], [(20.0, 1.0), (30.0, 1.0), (25.0, 5.0)]
    everything, nothing = fill([around, beside])
    assert everything.all()
    assert not nothing.any()


@pytest.mark.parametrize("rings", [[], [[(3.2, 4.1)]], [[(1.0, 1.0), (8.0, 6.0)]]])
def test_no_ring_points_and_lines_fill_nothing(rings: list[list[tuple[float, float]]]) -> None:
    assert not any(grid.any() for grid in fill(rings))
