"""Rotated boxes in numpy against those in torch, against OpenCV's rectangles and against labels of real pictures."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from xml.etree import ElementTree

import cv2
import numpy as np
import pytest
import shapely
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from lucid_yolo.ops import rotated
from lucid_yolo.ops.rotated_np import canonical, corners, envelopes, from_corners
from tests.ops.rotated_boxes import Rotated, polygon, polygon_iou, random_boxes, rotated_boxes, vertices

numbers = st.integers(-102_400, 102_400).map(lambda number: number / 1024)  # shapely is undecided on subnormal ones
quadrilaterals = st.lists(st.tuples(numbers, numbers), min_size=4, max_size=4)


@given(rotated_boxes)
@example((0.0, 0.0, 4.0, 2.0, 3 * math.pi / 4 - 2e-6))  # counts as the other end of the range
def test_equal_to_torch(box: Rotated) -> None:
    boxes = np.array([[box, box[::-1]]]).clip([-99, -99, 0, 0, -99])
    for here, there in ((canonical, rotated.canonical), (corners, rotated.corners), (envelopes, rotated.envelopes)):
        found = here(boxes)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, there(torch.from_numpy(boxes)).numpy(), rtol=0, atol=1e-12)


def test_functions_take_float32_and_no_boxes() -> None:
    boxes = random_boxes(np.random.default_rng(0), 3).astype(np.float32)
    for function, shape in ((canonical, (5,)), (corners, (4, 2)), (envelopes, (4,))):
        assert function(boxes).shape == (3, *shape)
        assert function(boxes[:0]).shape == (0, *shape)
    assert from_corners(np.zeros((0, 4, 2))).shape == (0, 5)


@given(rotated_boxes)
def test_corners_of_a_rectangle_give_it_back_in_any_order(box: Rotated) -> None:
    points = np.array(vertices(box))
    orders = np.array(list(itertools.permutations(range(4))))
    found = from_corners(points[orders])
    assert (found == found[0]).all()
    x, y, long, short, theta = found[0].tolist()
    assert (x, y, long, short) == pytest.approx((box[0], box[1], max(box[2:4]), min(box[2:4])), abs=1e-9)
    assert polygon(box).hausdorff_distance(polygon((x, y, long, short, theta))) < 1e-3
    assert found[0].tolist() == canonical(found[0]).tolist()


def test_upright_rectangles_are_exact() -> None:
    found = from_corners(np.array([[[3, 5], [10, 5], [10, 9], [3, 9]], [[0, 0], [0, 9], [4, 9], [4, 0]]]))
    assert found.tolist() == [[6.5, 7, 7, 4, 0], [2, 4.5, 9, 4, math.pi / 2]]


def test_far_from_the_origin_nothing_is_lost() -> None:
    points = np.array([[0, 0], [6, 8], [2, 11], [-4, 3]])
    near, far = from_corners(np.stack((points, points + 2**40)))
    assert near.tolist() == pytest.approx((1, 5.5, 10, 5, math.atan2(4, 3)), abs=1e-12)
    assert (far - near).tolist() == [2**40, 2**40, 0, 0, 0]


@given(quadrilaterals)
def test_the_rectangle_of_least_area_around_four_points(points: list[tuple[float, float]]) -> None:
    found = from_corners(np.array([points]))[0]
    assert np.isfinite(found).all()
    x, y, width, height, theta = found.tolist()
    along, across = np.array([math.cos(theta), math.sin(theta)]), np.array([-math.sin(theta), math.cos(theta)])
    offsets = np.array(points) - [x, y]
    assert np.abs(offsets @ along).max() == pytest.approx(width / 2, abs=1e-3)
    assert np.abs(offsets @ across).max() == pytest.approx(height / 2, abs=1e-3)
    (_, sides, _) = cv2.minAreaRect(np.array(points, np.float32))
    assert width * height <= sides[0] * sides[1] + 0.05  # OpenCV calculates in float32
    assert width * height >= shapely.MultiPoint(points).minimum_rotated_rectangle.area - 0.05


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(7, 5)] * 4, (7, 5, 0, 0, 0)),
        ([(1, 1), (4, 5), (1, 1), (4, 5)], (2.5, 3, 5, 0, math.atan2(4, 3))),
        ([(0, 0), (2, 2), (1, 1), (4, 4)], (2, 2, math.sqrt(32), 0, math.pi / 4)),
        ([(0, 0), (0, 8), (0, 8), (0, 2)], (0, 4, 8, 0, math.pi / 2)),
        ([(0, 0), (4, 0), (4, 3), (4, 3)], (2, 1.5, 4, 3, 0)),  # a triangle
        ([(0, 0), (6, 0), (2, 1), (3, 2)], (3, 1, 6, 2, 0)),  # one point inside
    ],
)
def test_degenerate_quadrilaterals(points: list[tuple[float, float]], expected: Rotated) -> None:
    with np.errstate(all="raise"):
        found = from_corners(np.array([points], np.float64))
    assert found[0].tolist() == pytest.approx(expected, abs=1e-12)


def test_labels_of_real_pictures(test_data: Path) -> None:
    """The angle of roLabelImg files turns as ours does, and DOTA corners (two decimals) give the boxes back."""
    folder = test_data / "hituav_obb"
    seen = 0
    for path in sorted((folder / "Annotations").glob("*.xml")):
        boxes = [
            [float(box.findtext(name, "")) for name in ("cx", "cy", "w", "h", "angle")]
            for box in ElementTree.parse(path).iter("robndbox")
        ]
        lines = (folder / "converted/labelTxt" / f"{path.stem}.txt").read_text().splitlines()
        points = np.array([line.split()[:8] for line in lines], np.float64).reshape(-1, 4, 2)
        if not boxes:
            continue
        np.testing.assert_allclose(corners(np.array(boxes)), points, rtol=0, atol=0.0051)
        found = from_corners(points)
        np.testing.assert_allclose(envelopes(found), envelopes(np.array(boxes)), rtol=0, atol=0.02)
        overlaps = [polygon_iou(tuple(a), tuple(b)) for a, b in zip(found.tolist(), boxes, strict=True)]
        assert min(overlaps) > 0.99
        seen += len(boxes)
    assert seen == 775
