"""Detections of windows in the frame of their picture, by hand."""

from __future__ import annotations

import math

import numpy as np

from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.merging import merge_windows, move_to_picture
from lucid_yolo.ops.rle import Rle
from lucid_yolo.ops.tiling import Window, windows

INF = math.inf


def boxes(*rows: tuple[float, ...]) -> Detections:
    """Detections from rows of x1, y1, x2, y2, score."""
    values = np.array(rows, np.float32).reshape(-1, 5)
    return Detections(values[:, :4], values[:, 4], np.arange(len(values)))


def test_the_window_whose_core_has_the_centre_answers() -> None:
    # Windows of 100 at 0 and 50 over a width of 150: the middle of their overlap is 75.
    left, right = windows(150, 60, 100, 20)
    assert (left.core, right.core) == ((-INF, -INF, 75, INF), (75, -INF, INF, INF))
    found = (
        boxes((60, 10, 80, 30, 0.8), (70, 10, 90, 30, 0.7), (70, 0, 80, 9, 0.6), (0, 0, 4, 4, 0.3)),
        boxes((10, 10, 30, 30, 0.9), (20, 10, 40, 30, 0.75), (20, 0, 30, 9, 0.65)),
    )
    merged = merge_windows(found, (left, right), width=150, height=60)
    # Centres: 70 belongs to the left window, 80 to the right one, 75 to the right one, 2 to the left one.
    assert merged.boxes.tolist() == [[60, 10, 80, 30], [70, 10, 90, 30], [70, 0, 80, 9], [0, 0, 4, 4]]
    assert np.allclose(merged.scores, [0.8, 0.75, 0.65, 0.3])
    assert merged.classes.tolist() == [0, 1, 2, 3]


def test_equal_scores_stay_in_the_order_of_the_windows_and_nothing_is_left_out() -> None:
    cover = windows(300, 300, 100, 0)
    found = [boxes(*[(5, 5, 15, 15, 0.4), (5, 5, 15, 15, 0.5)] * 100) for _ in cover]
    merged = merge_windows(found, cover, width=300, height=300)
    assert len(merged) == 9 * 200
    windows_in_order = [[x + 5, y + 5] for y in (0, 100, 200) for x in (0, 100, 200) for _ in range(100)]
    assert merged.boxes[:, :2].tolist() == windows_in_order * 2


def test_a_box_at_the_edge_of_its_window_is_not_rounded_out_of_it() -> None:
    # At 20000 pixels neighbouring numbers of float32 are 0.002 apart.
    cover = windows(20200, 100, 100, 0)
    found = [boxes()] * len(cover)
    found[200] = boxes((np.nextafter(np.float32(100), np.float32(0)), 0, 100, 10, 0.5))
    assert len(merge_windows(found, cover, width=20200, height=100)) == 1


def test_one_window_is_the_picture() -> None:
    found = boxes((-5, 0, 2, 3, 0.5))
    assert merge_windows([found], windows(40, 30, 100, 20), width=40, height=30) is found


def test_masks_and_key_points_move_with_their_boxes() -> None:
    mask = np.array([[1, 0], [1, 1]], bool)
    found = Detections(
        np.array([[0, 0, 2, 2]], np.float32),
        np.array([0.5], np.float32),
        np.array([7]),
        masks=(Rle.encode(mask),),
        keypoints=np.array([[[1, 2, 0.25], [-3, 4, 0.75]]], np.float32),
    )
    moved = move_to_picture(found, Window(3, 1, 2, 2, (3, 1, INF, INF)), width=6, height=4)
    assert moved.boxes.tolist() == [[3, 1, 5, 3]]
    assert moved.keypoints is not None
    assert moved.keypoints.tolist() == [[[4, 3, 0.25], [0, 5, 0.75]]]
    assert moved.masks is not None
    assert moved.masks[0].decode().astype(int).tolist() == [
        [0, 0, 0, 0, 0, 0],
        [0, 0, 0, 1, 0, 0],
        [0, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 0],
    ]


def test_rotated_boxes_count_by_their_own_centres_and_are_clipped_to_the_picture_only() -> None:
    left, right = windows(200, 100, 100, 0)
    half, quarter = math.pi / 2, math.pi / 4
    # The first reaches from 75 to 115 beyond its window. The second has its centre in the other window; the upright box
    # around what is seen of it has not. The third reaches over the upper edge of the picture.
    rotated = np.array([[95, 50, 40, 20, 0], [101, 50, 40, 20, half], [50, 2, 20, 20, quarter]], np.float32)
    clipped = np.array([[75, 40, 100, 60], [91, 30, 100, 70], [36, 0, 64, 16]], np.float32)
    found = Detections(clipped, np.array([0.9, 0.8, 0.7], np.float32), np.arange(3), rotated=rotated)
    empty = found.take(np.zeros(0, np.int64))
    merged = merge_windows((found, empty), (left, right), width=200, height=100)
    assert merged.classes.tolist() == [0, 2]
    assert merged.rotated is not None
    assert np.array_equal(merged.rotated, rotated[[0, 2]])
    reach = 10 * math.sqrt(2)
    assert np.allclose(merged.boxes, [[75, 40, 115, 60], [50 - reach, 0, 50 + reach, 2 + reach]])
    other = merge_windows((empty, found), (left, right), width=200, height=100)
    assert other.rotated is not None
    assert np.array_equal(other.rotated[:, 0], [195, 201, 150])
    assert np.allclose(other.rotated[:, 1:], rotated[:, 1:])
    assert np.allclose(other.boxes[0], [175, 40, 200, 60])
