"""Overlays, pixel by pixel."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from lucid_yolo.ops.detections import Detections
from lucid_yolo.viz.draw import Pen, draw_boxes, draw_detections, draw_objects, save_picture
from lucid_yolo.viz.style import class_color


@pytest.fixture
def gray():
    return np.full((200, 300, 3), 128, np.uint8)


def boxes(*rows):
    return np.array(rows, np.float32).reshape(-1, 4)


def test_border_has_the_color_of_the_class_and_the_inside_stays(gray):
    drawn = draw_boxes(gray, boxes((50, 60, 150, 160)), np.array([1]), [""])
    color = list(class_color(1))
    for x, y in ((50, 60), (150, 60), (50, 160), (150, 160), (100, 60), (100, 160), (50, 100), (150, 100)):
        assert drawn[y, x].tolist() == color
    assert (drawn[70:150, 60:140] == 128).all()
    assert (drawn[:50] == 128).all()
    assert (drawn[:, 160:] == 128).all()
    assert (gray == 128).all()  # the picture itself is untouched


def test_text_stands_on_a_plate_above_the_box(gray):
    drawn = draw_boxes(gray, boxes((50, 60, 150, 160)), np.array([0]), ["cell 0.90"])
    plate = drawn[45:59, 52:80].reshape(-1, 3)
    share = (plate == class_color(0)).all(axis=1).mean()
    assert 0.3 < share < 1.0  # color with letters on it
    assert (drawn[20:40] == 128).all()


def test_text_goes_inside_where_there_is_no_room_above(gray):
    drawn = draw_boxes(gray, boxes((50, 0, 150, 100)), np.array([0]), ["cell"])
    assert (drawn[6:10, 55:70] == class_color(0)).all(axis=2).any()


def test_text_that_would_cover_another_is_left_out(gray):
    same = boxes(*[(50, 60, 150, 160)] * 5)
    crowded = draw_boxes(gray, same, np.arange(5), ["cell"] * 5)
    plates = {tuple(color) for color in crowded.reshape(-1, 3).tolist()}
    assert {class_color(0), class_color(1), class_color(2)} <= plates  # above, inside, below
    assert class_color(3) not in plates
    assert class_color(4) not in plates  # the border of the first box covers theirs


def test_first_box_lies_on_top(gray):
    drawn = draw_boxes(gray, boxes((50, 60, 150, 160), (50, 60, 150, 160)), np.array([0, 1]), ["", ""])
    assert drawn[60, 100].tolist() == list(class_color(0))


def test_boxes_beyond_the_picture_are_clipped_and_broken_ones_skipped(gray):
    wild = boxes((-1e9, -50, 1e12, 20), (np.nan, 0, 10, 10), (0, 0, np.inf, 10))
    drawn = draw_boxes(gray, wild, np.array([0, 1, 2]), ["a", "b", "c"])
    assert drawn[0, 150].tolist() == list(class_color(0))
    colors = {tuple(color) for color in drawn.reshape(-1, 3).tolist()}
    assert class_color(1) not in colors
    assert class_color(2) not in colors


def test_crowds_are_tinted(gray):
    drawn = draw_objects(gray, boxes((50, 60, 150, 160)), np.array([2]), ("a", "b", "c"), crowd=np.array([True]))
    expected = [round(0.75 * 128 + 0.25 * c) for c in class_color(2)]
    assert drawn[140, 100].tolist() == expected
    plain = draw_objects(gray, boxes((50, 60, 150, 160)), np.array([2]), ("a", "b", "c"))
    assert plain[140, 100].tolist() == [128] * 3


def test_lines_grow_with_the_picture():
    widths = [Pen.for_size(side, side).line for side in (32, 640, 2000, 4000)]
    assert widths == [1, 3, 8, 16]  # 4 per mille, rounded


def test_no_detections_gives_a_copy(gray):
    empty = Detections(boxes(), np.zeros(0, np.float32), np.zeros(0, np.int64))
    drawn = draw_detections(gray, empty, ("a",))
    assert np.array_equal(drawn, gray)
    assert not np.shares_memory(drawn, gray)


def test_tiny_picture_and_long_name():
    found = Detections(boxes((1, 1, 6, 6)), np.array([0.5], np.float32), np.array([0]))
    assert draw_detections(np.zeros((8, 8, 3), np.uint8), found, ("x" * 100,)).shape == (8, 8, 3)


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_saved_picture_keeps_its_channels(tmp_path, suffix):
    red = np.zeros((16, 16, 3), np.uint8)
    red[..., 0] = 250
    path = save_picture(red, tmp_path / "new" / f"bild \u00e4{suffix}")
    stored = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR)  # blue, green, red
    assert np.abs(stored[8, 8].astype(int) - [0, 0, 250]).max() <= 3
