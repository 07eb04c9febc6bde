"""Envelopes of rings on a canvas against rings filled at a fine grid."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lucid_yolo.ops.clipping import clipped_envelopes
from lucid_yolo.ops.rasters import fill_rings

SIZE, FINE = 8, 40
POINT = st.tuples(st.integers(-8, 16), st.integers(-8, 16))


def envelope(points: list[tuple[float, float]]) -> list[float]:
    return clipped_envelopes(np.array(points, np.float64), np.array([0, len(points)]), SIZE)[0].tolist()


def thickness(triangle: np.ndarray) -> float:
    """Smallest height of a triangle: 0 where its corners lie on one line."""
    sides = np.roll(triangle, -1, axis=0) - triangle
    twice_the_area = abs(sides[0, 0] * sides[1, 1] - sides[0, 1] * sides[1, 0])
    return float(twice_the_area / max(np.linalg.norm(sides, axis=1).max(), 1e-9))


@settings(deadline=None, max_examples=200)
@given(st.lists(POINT, min_size=3, max_size=7))
def test_holds_what_is_filled_and_little_more(points: list[tuple[int, int]]) -> None:
    """Points on a coarse lattice, so that what is inside is seldom thinner than a cell of the fine grid."""
    ring = np.array(points, np.float64)
    left, top, right, bottom = envelope([(float(x), float(y)) for x, y in points])
    (window,) = fill_rings(ring * FINE, np.array([0, len(ring)]), SIZE * FINE)
    rows, columns = np.nonzero(window.inside)
    if not len(rows):
        return
    low = np.array([columns.min() + window.left, rows.min() + window.top]) / FINE
    high = np.array([columns.max() + window.left + 1, rows.max() + window.top + 1]) / FINE
    assert (low >= np.array([left, top]) - 1 / FINE).all()
    assert (high <= np.array([right, bottom]) + 1 / FINE).all()
    if len(points) == 3 and thickness(ring) > 1:  # a triangle is filled to its tips but for thin ends
        assert (low <= np.array([left, top]) + 1).all()
        assert (high >= np.array([right, bottom]) - 1).all()


def test_by_hand() -> None:
    assert envelope([(2, 1), (5, 1), (4, 3)]) == [2, 1, 5, 3]
    assert envelope([(-4, 4), (4, -4), (4, 4)]) == [0, 0, 4, 4]  # the edge passes through the corner
    assert envelope([(-6, 2), (2, -6), (-6, -6)]) == [
        np.inf,
        np.inf,
        -np.inf,
        -np.inf,
    ]  # only its box reaches in
    assert envelope([(4, 4), (16, 2), (16, 6)]) == [4, 4 - 2 / 3, 8, 4 + 2 / 3]
    assert envelope([(-9, -9), (30, -9), (30, 30), (-9, 30)]) == [0, 0, 8, 8]  # only corners of the canvas
    assert envelope([(-1, -1), (3, -1), (3, 2), (-1, 2)]) == [0, 0, 3, 2]


def test_every_ring_has_its_own() -> None:
    points = np.array([(2, 1), (5, 1), (4, 3), (20, 20), (21, 20), (20, 22), (6, 6), (12, 6), (6, 12)], np.float64)
    found = clipped_envelopes(points, np.array([0, 3, 6, 9]), SIZE)
    assert found[[0, 2]].tolist() == [[2, 1, 5, 3], [6, 6, 8, 8]]
    assert found[1, 0] > found[1, 2]
    assert clipped_envelopes(np.zeros((0, 2)), np.array([0]), SIZE).shape == (0, 4)
