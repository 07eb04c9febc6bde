"""The letterbox: hand-computed placements and an exact inverse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucid_yolo.ops.letterbox import letterbox_for, scaled_size

SIDE = st.integers(1, 6000)


@pytest.mark.parametrize(
    ("picture", "scaled", "pads"),
    [
        ((1280, 720), (640, 360), (0, 140)),
        ((720, 1280), (360, 640), (140, 0)),
        ((320, 240), (640, 480), (0, 80)),  # enlarged
        ((640, 640), (640, 640), (0, 0)),
        ((500, 375), (640, 480), (0, 80)),
        ((1000, 333), (640, 213), (0, 213)),  # 427 rows of padding: 213 above, 214 below
        ((6000, 1), (640, 1), (0, 319)),
    ],
)
def test_placement_by_hand(picture, scaled, pads):
    letterbox = letterbox_for(*picture, 640)
    assert scaled_size(*picture, 640) == scaled == (letterbox.scaled_width, letterbox.scaled_height)
    assert (letterbox.pad_x, letterbox.pad_y) == pads
    assert (letterbox.width, letterbox.height) == picture


def test_the_whole_picture_covers_exactly_its_pixels():
    letterbox = letterbox_for(1000, 333, 640)
    np.testing.assert_array_equal(letterbox.boxes_to_canvas(np.array([[0, 0, 1000, 333.0]])), [[0, 213, 640, 426]])


@given(SIDE, SIDE, st.sampled_from([32, 160, 640, 1024]), st.lists(st.tuples(*[st.floats(0, 1)] * 4), max_size=5))
@settings(max_examples=200, deadline=None)
def test_there_and_back(width, height, image_size, corners):
    letterbox = letterbox_for(width, height, image_size)
    size = np.array([width, height, width, height])
    boxes = np.array(corners, np.float64).reshape(-1, 4) * size
    canvas = letterbox.boxes_to_canvas(boxes)
    assert canvas.dtype == np.float32
    assert canvas.shape == boxes.shape
    assert (canvas >= 0).all()
    assert (canvas <= image_size).all()
    # one float32 rounding on the canvas, seen through the scale
    bound = image_size * 2.0**-23 / min(letterbox.scaled_width / width, letterbox.scaled_height / height) + 1e-3
    np.testing.assert_allclose(letterbox.boxes_to_picture(canvas), boxes, atol=bound)


@given(SIDE, SIDE, st.sampled_from([32, 640]), st.tuples(*[st.floats(-1, 2)] * 4))
@settings(max_examples=100, deadline=None)
def test_points_go_where_the_corners_of_boxes_go(width, height, image_size, corners):
    letterbox = letterbox_for(width, height, image_size)
    box = np.array([corners]) * [width, height, width, height]
    points = letterbox.points_to_canvas(box.reshape(1, 2, 2))
    np.testing.assert_allclose(points.reshape(1, 4), letterbox.boxes_to_canvas(box), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(letterbox.points_to_picture(points), box.reshape(1, 2, 2), rtol=1e-6, atol=1e-3)
