"""The warp: boxes must land where the pixels land."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucid_yolo.data.geometry import (
    blank,
    boxes_to_points,
    inverse,
    letterboxed,
    linear_part,
    moved_first,
    paste,
    picture_envelope,
    resized,
    scaled_first,
    visible,
)

SIZE = 96
angles = st.sampled_from([0.0, 0.0, -40.0, 15.0, 90.0, 170.0])


@st.composite
def matrices(draw):
    linear = linear_part(
        degrees=draw(angles),
        scale=draw(st.floats(0.4, 2.5)),
        shear_x=draw(st.floats(-20, 20)),
        shear_y=draw(st.sampled_from([0.0, 10.0])),
    )
    if draw(st.booleans()):
        linear = np.diag([-1.0, 1.0]) @ linear
    return np.column_stack([linear, [draw(st.floats(-40, 120)), draw(st.floats(-40, 120))]])


def bilinear(picture: np.ndarray, x: float, y: float) -> np.ndarray:
    """Colour at a continuous position: pixel centres are at + 0.5, and the border pixels go on outside."""
    height, width = picture.shape[:2]
    x, y = x - 0.5, y - 0.5
    x0, y0 = math.floor(x), math.floor(y)
    total = np.zeros(3)
    for yy, wy in ((y0, 1 - (y - y0)), (y0 + 1, y - y0)):
        for xx, wx in ((x0, 1 - (x - x0)), (x0 + 1, x - x0)):
            total += wx * wy * picture[min(max(yy, 0), height - 1), min(max(xx, 0), width - 1)]
    return total


def slow_paste(canvas: np.ndarray, picture: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Every canvas pixel by itself."""
    result = canvas.astype(np.float64)
    back = inverse(matrix)
    for row in range(canvas.shape[0]):
        for column in range(canvas.shape[1]):
            x, y = back[:, :2] @ [column + 0.5, row + 0.5] + back[:, 2]
            if 0 <= x < picture.shape[1] and 0 <= y < picture.shape[0]:
                result[row, column] = bilinear(picture, x, y)
    return result


def smooth(height: int, width: int) -> np.ndarray:
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return cv2.GaussianBlur(noise, (0, 0), 2)


@given(matrices())
@settings(max_examples=12, deadline=None)
def test_paste_equals_a_loop_over_pixels(matrix):
    canvas, picture = blank(40), smooth(23, 31)
    matrix = matrix.copy()
    matrix[:, 2] /= 2
    expected = slow_paste(canvas, picture, matrix)
    paste(canvas, picture, matrix)
    # OpenCV rounds positions to 1/32 pixel; a pixel centre on the very edge may fall to either side.
    assert (np.abs(canvas - expected) > 4).any(axis=2).mean() < 0.01


def test_identity_is_a_copy():
    canvas, picture = blank(SIZE), smooth(50, 70)
    paste(canvas, picture, np.array([[1.0, 0, 10], [0, 1.0, 20]]))
    np.testing.assert_array_equal(canvas[20:70, 10:80], picture)
    canvas[20:70, 10:80] = 114
    assert (canvas == 114).all()


def test_mirroring_is_exact():
    canvas, picture = blank(40), smooth(40, 40)
    paste(canvas, picture, np.array([[-1.0, 0, 40], [0, 1.0, 0]]))
    np.testing.assert_array_equal(canvas, picture[:, ::-1])


@given(matrices(), st.tuples(st.integers(0, 40), st.integers(0, 40)), st.tuples(st.integers(3, 40), st.integers(3, 40)))
@settings(max_examples=100, deadline=None)
def test_boxes_land_on_the_mask_that_is_warped_alike(matrix, corner, sides):
    box = np.array([[*corner, corner[0] + sides[0], corner[1] + sides[1]]], np.float32)
    x1, y1, x2, y2 = (int(edge) for edge in box[0])
    picture = np.zeros((80, 80, 3), np.uint8)
    picture[y1:y2, x1:x2] = 255
    canvas = np.zeros((SIZE, SIZE, 3), np.uint8)
    paste(canvas, picture, matrix)
    clipped, keep = visible(boxes_to_points(box).warped(matrix).envelopes(), SIZE)
    rows, columns = np.nonzero(canvas[..., 0] >= 128)
    if len(rows) == 0:
        return
    found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    outside = np.concatenate([clipped[0, :2] - found[:2], found[2:] - clipped[0, 2:]])
    assert outside.max() <= 1.0  # nothing of the object lies outside its box ...
    if keep[0] and matrix[0, 1] == 0 == matrix[1, 0]:
        np.testing.assert_allclose(found, clipped[0], atol=1.01)  # ... and without rotation the box is tight


def test_pictures_that_share_an_edge_divide_the_canvas():
    for degrees in (0.0, 33.0):
        window = np.column_stack([linear_part(degrees=degrees, scale=1.37, shear_x=0, shear_y=0), [47.3, 51.9]])
        canvas = np.zeros((SIZE, SIZE, 3), np.uint8)
        covered = np.zeros((SIZE, SIZE), int)
        for x, y in ((-200, -200), (0, -200), (-200, 0), (0, 0)):
            one = np.zeros_like(canvas)
            paste(one, np.full((200, 200, 3), 255, np.uint8), moved_first(window, x, y))
            covered += one[..., 0] == 255
        assert (covered == 1).all()


def test_visible_by_hand():
    boxes = np.array(
        [
            [-10, 10, 2, 20],  # 2 x 10 of 12 x 10 left
            [-10, 10, 1.9, 20],  # 1.9 px wide
            [-90, 10, 9, 20],  # 9 of 99 columns: less than a tenth
            [-81, 10, 9, 20],  # 9 of 90: exactly a tenth
            [10, 10, 30, 11],  # 1 px high
            [200, 10, 300, 20],  # outside
            [0, 0, 100, 100],
        ],
        np.float64,
    )
    clipped, keep = visible(boxes, 100)
    assert keep.tolist() == [True, False, False, True, False, False, True]
    assert clipped[0].tolist() == [0, 10, 2, 20]


def test_points_by_hand():
    points = boxes_to_points(np.array([[1, 2, 5, 4], [0, 0, 2, 2.0]]))
    assert points.xy[:4].tolist() == [[1, 2], [5, 2], [5, 4], [1, 4]]
    assert points.offsets.tolist() == [0, 4, 8]
    quarter = np.array([[0.0, -1, 10], [1, 0, 0]])  # (x, y) -> (10 - y, x)
    assert points.warped(quarter).envelopes().tolist() == [[6, 1, 8, 5], [8, 0, 10, 2]]
    none = boxes_to_points(np.zeros((0, 4)))
    assert len(none) == 0
    assert none.warped(quarter).envelopes().shape == (0, 4)


def test_rotation_turns_right_toward_down():
    np.testing.assert_allclose(linear_part(degrees=90, scale=2, shear_x=0, shear_y=0) @ [1, 0], [0, 2], atol=1e-12)
    np.testing.assert_allclose(linear_part(degrees=0, scale=1, shear_x=45, shear_y=0) @ [0, 1], [1, 1], atol=1e-12)


@given(matrices(), st.floats(-5, 5), st.floats(0.5, 2))
@settings(max_examples=50, deadline=None)
def test_matrix_helpers_agree_with_points(matrix, move, factor):
    point = np.array([3.0, -2.0])

    def apply(m, p):
        return m[:, :2] @ p + m[:, 2]

    np.testing.assert_allclose(
        apply(moved_first(matrix, move, 1), point), apply(matrix, [point[0] + move, point[1] + 1]), atol=1e-9
    )
    np.testing.assert_allclose(
        apply(scaled_first(matrix, factor, 3), point), apply(matrix, point * [factor, 3]), atol=1e-9
    )
    np.testing.assert_allclose(apply(inverse(matrix), apply(matrix, point)), point, atol=1e-6)
    corners = boxes_to_points(np.array([[0, 0, 30, 20.0]])).warped(matrix)
    np.testing.assert_allclose(picture_envelope(matrix, 30, 20), corners.envelopes()[0], atol=1e-9)


@pytest.mark.parametrize("size", [(50, 20), (20, 50), (31, 31), (128, 40)])
def test_letterboxed_pixels_lie_where_the_boxes_say(size):
    width, height = size
    picture = np.full((height, width, 3), 200, np.uint8)
    canvas, box = letterboxed(picture, 64)
    x1, y1, x2, y2 = box.boxes_to_canvas(np.array([[0, 0, width, height]]))[0].astype(int)
    assert (canvas[y1:y2, x1:x2] == 200).all()
    canvas[y1:y2, x1:x2] = 114
    assert (canvas == 114).all()


def test_resized_averages_where_it_shrinks():
    picture = np.zeros((4, 4, 3), np.uint8)
    picture[:, ::2] = 100
    assert (resized(picture, 2, 2) == 50).all()
    assert resized(picture, 4, 4) is picture
