from __future__ import annotations

import math

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucid_yolo.data.shapes.geometry import CLASS_NAMES, bar, disc, make_shape
from lucid_yolo.data.shapes.raster import coverage, paint


def full(outline: np.ndarray, size: int) -> np.ndarray:
    share, left, top = coverage(outline, (size, size))
    canvas = np.zeros((size, size))
    canvas[top : top + share.shape[0], left : left + share.shape[1]] = share
    return canvas


def test_rectangle_on_pixel_borders_and_between() -> None:
    corners = np.array([(1.0, 1.0), (3.5, 1.0), (3.5, 2.5), (1.0, 2.5)])
    expected = np.zeros((5, 5))
    expected[1, 1:3], expected[1, 3] = 1.0, 0.5
    expected[2, 1:3], expected[2, 3] = 0.5, 0.25
    np.testing.assert_allclose(full(corners, 5), expected, atol=1e-12)
    np.testing.assert_allclose(full(corners[::-1], 5), expected, atol=1e-12)  # either direction


def test_triangle_covers_half_of_its_square() -> None:
    share = full(np.array([(0.0, 0.0), (4.0, 0.0), (0.0, 4.0)]), 4)
    # the longest side crosses the pixels of the second diagonal from corner to corner
    np.testing.assert_allclose(share, _half_square(), atol=1e-12)


def _half_square() -> np.ndarray:
    rows, columns = np.mgrid[:4, :4]
    return np.where(rows + columns < 3, 1.0, np.where(rows + columns == 3, 0.5, 0.0))


@given(
    st.integers(0, len(CLASS_NAMES) - 1),
    st.floats(4, 20),
    st.floats(0.65, 1),
    st.floats(0, 2 * math.pi),
    st.floats(30, 34),
)
def test_covered_area_is_the_polygon_area(label: int, radius: float, aspect: float, angle: float, x: float) -> None:
    shape = make_shape(label, center=(x, 31.3), radius=radius, aspect=aspect, angle=angle)
    share = full(shape.outline, 64)
    assert shape.area == pytest.approx(cv2.contourArea(shape.outline.astype(np.float32)), rel=1e-3)
    # a level edge may lie half a sample row, 1/8 pixel, from where the rows see it
    assert share.sum() == pytest.approx(shape.area, rel=0.01, abs=2 * radius / 8)
    assert share.min() >= 0
    assert share.max() <= 1


@given(st.floats(-20, 84), st.floats(-20, 84))
def test_what_lies_outside_is_cut_off(x: float, y: float) -> None:
    outline = disc((x, y), 12.0)
    wide = full(outline + 40.0, 144)[40:104, 40:104]
    np.testing.assert_allclose(full(outline, 64), wide, atol=1e-9)


def test_paint_blends() -> None:
    canvas = np.full((4, 4, 3), 100.0, np.float32)
    paint(canvas, np.array([(0.0, 0.0), (1.5, 0.0), (1.5, 1.0), (0.0, 1.0)]), np.array([200.0, 0.0, 100.0]))
    assert canvas[0, 0].tolist() == [200, 0, 100]
    assert canvas[0, 1].tolist() == [150, 50, 100]
    assert (canvas[1:] == 100).all()


def test_bar_has_its_width() -> None:
    outline = bar((2.0, 5.0), (12.0, 5.0), 3.0)
    assert sorted(outline.tolist()) == [[2.0, 3.5], [2.0, 6.5], [12.0, 3.5], [12.0, 6.5]]
