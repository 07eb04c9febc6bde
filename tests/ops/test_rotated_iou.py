"""Overlap of rotated boxes against hand calculation and shapely, suppression against the loop of its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lucid_yolo.ops import rotated_iou as module
from lucid_yolo.ops.nms import batched_nms
from lucid_yolo.ops.rotated_iou import rotated_iou, rotated_nms
from tests.ops.rotated_boxes import Rotated, equivalents, polygon_iou, random_boxes, rotated_boxes


def one(first: Rotated, second: Rotated) -> float:
    (value,) = rotated_iou(np.array([first]), np.array([second])).flatten().tolist()
    return float(value)


SQUARE = (0.0, 0.0, 10.0, 10.0, 0.0)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (SQUARE, SQUARE, 1.0),
        (SQUARE, (5, 0, 10, 10, 0), 1 / 3),
        (SQUARE, (0, 0, 10, 10, math.pi / 4), 1 / math.sqrt(2)),  # an octagon of 2 (sqrt(2) - 1) s^2
        ((0, 0, 10, 2, 0), (0, 0, 10, 2, math.pi / 2), 4 / 36),  # a cross
        ((0, 0, 10, 2, 0.6), (0, 0, 10, 2, 0.6 + math.pi / 2), 4 / 36),
        (SQUARE, (1, 1, 2, 2, 1.0), 0.04),  # inside
        ((3, 1, 1, 1, 0.5), (0, 0, 20, 20, -2.0), 1 / 400),
        (SQUARE, (10, 0, 10, 10, 0), 0.0),  # a common edge
        (SQUARE, (10, 10, 10, 10, 0), 0.0),  # a common corner
        (SQUARE, (5 + math.sqrt(2), 0, 2, 2, math.pi / 4), 0.0),  # a corner on an edge
        (SQUARE, (5, 0, 2, 2, math.pi / 4), 2 / 102),  # half of the small one
        (SQUARE, (5, 5, math.sqrt(50), math.sqrt(50), math.pi / 4), 12.5 / 137.5),  # a triangle: one corner cut off
        (SQUARE, (7, 7, math.sqrt(32), math.sqrt(32), math.pi / 4), 0.0),  # envelopes overlap, boxes touch
        (SQUARE, (8, 8, math.sqrt(32), math.sqrt(32), math.pi / 4), 0.0),  # envelopes overlap, boxes do not
        (SQUARE, (0, 0, 0, 10, 0), 0.0),
        (SQUARE, (0, 0, 10, -3, 0), 0.0),
        ((0, 0, 0, 0, 1), (0, 0, 0, 0, 1), 0.0),
        (SQUARE, (1e6, 0, 10, 10, 0), 0.0),
    ],
)
def test_by_hand(first: Rotated, second: Rotated, expected: float) -> None:
    assert one(first, second) == pytest.approx(expected, abs=1e-12)
    assert one(second, first) == pytest.approx(expected, abs=1e-12)


def test_of_equal_boxes_is_exactly_one_far_from_the_origin_too() -> None:
    near = random_boxes(np.random.default_rng(0), 50)
    far = near + np.array([1e6, -1e6, 0, 0, 0])
    overlap = rotated_iou(far, far)
    assert (overlap.diagonal() == 1).all()
    np.testing.assert_allclose(overlap, rotated_iou(near, near), rtol=0, atol=1e-9)


@settings(max_examples=300)
@given(rotated_boxes, rotated_boxes)
def test_equal_to_polygons(first: Rotated, second: Rotated) -> None:
    assert one(first, second) == pytest.approx(polygon_iou(first, second), abs=1e-9)


@given(rotated_boxes, st.tuples(*[st.sampled_from([0.0, 1e-15, -1e-12, 1e-9, 0.5, 1.0])] * 5))
def test_equal_to_polygons_of_boxes_that_almost_coincide(box: Rotated, change: Rotated) -> None:
    other = tuple(a + b for a, b in zip(box, change, strict=True))
    assert one(box, other) == pytest.approx(polygon_iou(box, other), abs=1e-8)


@given(rotated_boxes, rotated_boxes)
def test_does_not_see_the_encoding(first: Rotated, second: Rotated) -> None:
    overlap = rotated_iou(np.array(equivalents(first)), np.array(equivalents(second)))
    np.testing.assert_allclose(overlap, overlap[0, 0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(rotated_iou(np.array(equivalents(first)), np.array([first])), 1, rtol=0, atol=1e-12)


def test_every_pair_and_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    first, second = random_boxes(rng, 30), random_boxes(rng, 40).astype(np.float32)
    overlap = rotated_iou(first, second)
    expected = [[polygon_iou(tuple(a), tuple(b)) for b in second.tolist()] for a in first.tolist()]
    np.testing.assert_allclose(overlap, expected, rtol=0, atol=1e-12)
    assert 0.1 < (overlap == 0).mean() < 0.9
    monkeypatch.setattr(module, "_CHUNK", 7)
    assert np.array_equal(rotated_iou(first, second), overlap)
    assert rotated_iou(first[:0], second).shape == (0, 40)
    assert rotated_iou(first, second[:0]).shape == (30, 0)


@pytest.mark.parametrize("column", range(5))
def test_nan_is_not_taken_for_no_overlap(column: int) -> None:
    boxes = random_boxes(np.random.default_rng(2), 4)
    broken = boxes.copy()
    broken[1, column] = np.nan
    assert np.isnan(rotated_iou(boxes, broken)).tolist() == [[False, True, False, False]] * 4
    assert np.isnan(rotated_iou(broken, boxes))[1].all()


def greedy(
    boxes: NDArray[np.float64], scores: list[float], classes: list[int], threshold: float, confidence: float, limit: int
) -> list[int]:
    """Positions of the survivors, one pair of polygons at a time."""
    kept: list[int] = []
    for i in sorted((i for i in range(len(scores)) if scores[i] > confidence), key=lambda i: (-scores[i], i)):
        rivals = [k for k in kept if classes[k] == classes[i]]
        if all(polygon_iou(tuple(boxes[k].tolist()), tuple(boxes[i].tolist())) <= threshold for k in rivals):
            kept.append(i)
    return kept[:limit]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(0, 25),
    st.sampled_from([0.1, 0.3, 0.7]),
    st.sampled_from([0.0, 0.3]),
    st.integers(1, 20),
)
def test_suppression_equals_the_greedy_loop(
    seed: int, count: int, threshold: float, confidence: float, limit: int
) -> None:
    rng = np.random.default_rng(seed)
    boxes = random_boxes(rng, count, span=30.0)
    scores, classes = rng.integers(0, 7, count) / 6, rng.integers(0, 2, count)
    kept = rotated_nms(boxes, scores, classes, iou=threshold, confidence=confidence, limit=limit)
    assert kept.dtype == np.int64
    assert kept.tolist() == greedy(boxes, scores.tolist(), classes.tolist(), threshold, confidence, limit)


def test_suppression_of_upright_boxes_equals_the_upright_one() -> None:
    rng = np.random.default_rng(3)
    boxes, scores, classes = random_boxes(rng, 300), rng.random(300), rng.integers(0, 3, 300)
    boxes[:, 4] = 0
    corners = np.concatenate([boxes[:, :2] - boxes[:, 2:4] / 2, boxes[:, :2] + boxes[:, 2:4] / 2], axis=1)
    expected = batched_nms(
        torch.from_numpy(corners)[None],
        torch.from_numpy(scores)[None],
        torch.from_numpy(classes)[None],
        iou=0.3,
        limit=80,
    )
    kept = rotated_nms(boxes, scores, classes, iou=0.3, limit=80)
    assert len(kept) == 80
    assert kept.tolist() == expected.indices[0][expected.valid[0]].tolist()


def test_a_box_turned_away_survives_and_a_box_on_it_does_not() -> None:
    boxes = np.array(
        [[50, 50, 60, 10, 0], [50, 50, 60, 10, math.pi / 2], [50, 50, 10, 60, math.pi / 2], [52, 50, 60, 10, 0]]
    )
    scores, classes = np.array([0.6, 0.7, 0.8, 0.9]), np.zeros(4, np.int64)
    assert rotated_nms(boxes, scores, classes, iou=0.7).tolist() == [3, 1]
    assert rotated_nms(boxes, scores, np.array([0, 0, 1, 0]), iou=0.7).tolist() == [3, 2, 1]


def test_an_overlap_of_exactly_the_threshold_is_kept() -> None:
    boxes = np.array([[50, 50, 20, 10, 0], [45, 50, 10, 10, 0]])
    scores, classes = np.array([0.9, 0.8]), np.zeros(2, np.int64)
    assert rotated_nms(boxes, scores, classes, iou=0.5).tolist() == [0, 1]
    assert rotated_nms(boxes, scores, classes, iou=0.499).tolist() == [0]
