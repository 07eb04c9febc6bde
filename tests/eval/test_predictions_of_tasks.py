"""Masks, key points and rotated boxes as files."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import cv2
import numpy as np
import pytest
from pycocotools import mask as coco_mask

from lucid_yolo.data.readers.parsers.polygons import PARSER as POLYGONS
from lucid_yolo.eval.predictions_io import detection_records, yolo_lines
from lucid_yolo.ops.rle import Rle


def shapes(seed: int) -> np.ndarray:
    """A mask of several parts with holes, (100, 200)."""
    rng = np.random.default_rng(seed)
    field = cv2.GaussianBlur(rng.standard_normal((100, 200)), (0, 0), 7)
    return field > 0


def even_odd(points: np.ndarray, height: int, width: int) -> np.ndarray:
    """Pixels whose centre an odd number of edges has to its left."""
    rows, columns = np.mgrid[0:height, 0:width] + 0.5
    inside = np.zeros((height, width), bool)
    for (x1, y1), (x2, y2) in zip(points, np.roll(points, -1, axis=0), strict=True):
        if y1 != y2:
            crosses = (y1 <= rows) != (y2 <= rows)
            inside ^= crosses & (x1 + (rows - y1) * (x2 - x1) / (y2 - y1) < columns)
    return inside


def agreement(a: np.ndarray, b: np.ndarray) -> float:
    return (a & b).sum() / (a | b).sum()


def test_mask_as_record(make_detections):
    mask = shapes(0)
    found = replace(make_detections([(0, 0, 200, 100, 0.5, 0)]), masks=(Rle.encode(mask),))
    (record,) = json.loads(json.dumps(detection_records("a.jpg", found, ("cell",), (1,))))
    assert np.array_equal(coco_mask.decode(record["segmentation"]), mask)
    filled = np.zeros((100, 200), bool)
    for polygon in record["polygons"]:
        filled |= even_odd(np.array(polygon).reshape(-1, 2), 100, 200)
    flooded = np.pad(~mask, 1, constant_values=True).astype(np.uint8)  # what is reached from outside is no hole
    cv2.floodFill(flooded, None, (0, 0), 2, flags=4)
    assert agreement(filled, flooded[1:-1, 1:-1] != 2) > 0.95
    assert "keypoints" not in record
    assert "rotated" not in record


@pytest.mark.parametrize("seed", range(4))
def test_line_of_a_mask_covers_all_its_parts_and_no_hole(make_detections, seed):
    mask = shapes(seed)
    mask[30:70, 60:120] = True
    mask[40:60, 80:100] = False
    assert cv2.connectedComponents(mask.astype(np.uint8))[0] > 2  # the background is one of them
    found = replace(make_detections([(0, 0, 200, 100, 0.25, 3)]), masks=(Rle.encode(mask),))
    (line,) = yolo_lines(found, width=200, height=100)
    label, *numbers, confidence = line.split()
    assert (label, confidence) == ("3", "0.250000")
    points = np.array(numbers, float).reshape(-1, 2) * (200, 100)
    assert agreement(even_odd(points, 100, 200), mask) > 0.95
    outline = POLYGONS.yolo([float(one) for one in numbers], None).value  # the project reads its own lines
    assert outline.points.shape == points.shape


def test_line_of_a_rectangle_by_hand(make_detections):
    mask = np.zeros((100, 200), bool)
    mask[20:60, 10:50] = True
    found = replace(make_detections([(10, 20, 50, 60, 0.5, 0)]), masks=(Rle.encode(mask),))
    (line,) = yolo_lines(found, width=200, height=100)
    corners = {tuple(map(float, pair)) for pair in zip(line.split()[1:-1:2], line.split()[2:-1:2], strict=True)}
    assert corners == {(0.05, 0.2), (0.25, 0.2), (0.25, 0.6), (0.05, 0.6)}


def test_mask_without_a_pixel_has_no_line(make_detections):
    empty = Rle.encode(np.zeros((100, 200), bool))
    found = replace(make_detections([(10, 20, 50, 60, 0.5, 0)]), masks=(empty,))
    assert yolo_lines(found, width=200, height=100) == []
    assert detection_records("a.jpg", found, ("cell",), (1,))[0]["polygons"] == []


def test_key_points(make_detections):
    points = np.array([[[20, 50, 0.75], [250, -10, 0.25]]], np.float32)
    found = replace(make_detections([(10, 20, 40, 60, 0.5, 1)]), keypoints=points)
    assert yolo_lines(found, width=200, height=100) == [
        "1 0.125000 0.400000 0.150000 0.400000 0.100000 0.500000 0.750000 1.250000 -0.100000 0.250000 0.500000"
    ]
    (record,) = detection_records("a.jpg", found, ("a", "b"), (1, 2))
    assert record["keypoints"] == [20, 50, 0.75, 250, -10, 0.25]
    assert record["bbox"] == [10, 20, 30, 40]


def test_rotated_box(make_detections):
    """60 x 20 about (100, 50), turned by 30 degrees: half the sides are (30 cos, 30 sin) and (-10 sin, 10 cos)."""
    found = replace(
        make_detections([(60, 20, 140, 80, 0.5, 1)]),
        rotated=np.array([[100, 50, 60, 20, math.pi / 6]], np.float32),
    )
    (line,) = yolo_lines(found, width=200, height=100)
    cos, sin = math.cos(math.pi / 6), math.sin(math.pi / 6)
    expected = [
        (100 + a * 30 * cos - b * 10 * sin, 50 + a * 30 * sin + b * 10 * cos)
        for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))
    ]
    label, *numbers, confidence = line.split()
    assert (label, confidence) == ("1", "0.500000")
    np.testing.assert_allclose(np.array(numbers, float).reshape(4, 2) * (200, 100), expected, atol=2e-4)
    (record,) = detection_records("a.jpg", found, ("a", "b"), (1, 2))
    assert record["rotated"] == pytest.approx([100, 50, 60, 20, math.pi / 6])
