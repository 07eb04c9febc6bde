"""Corners from COCO JSON, YOLO text files and the drawn set."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lucid_yolo.config.errors import DataError
from lucid_yolo.config.schema import DataConfig
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import LabelKind
from lucid_yolo.data.labels.corners import CornerLabels
from lucid_yolo.data.readers import read_split
from lucid_yolo.data.readers.parsers import get_parser
from lucid_yolo.data.readers.parsers.base import UnusableLabelError
from tests.ops.rotated_boxes import vertices

Write = Callable[..., Path]
RING = [10.0, 10.0, 30.0, 20.0, 25.0, 30.0, 5.0, 20.0]  # a rectangle: sides (20, 10) and (-5, 10)
PLACE = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], "area": 250}
PARSER = get_parser(LabelKind.CORNERS)


def read(root: Path, format_: str, **keys: Any) -> SplitIndex:
    return read_split(DataConfig(format=format_, root=str(root), **keys), "train", LabelKind.CORNERS)


def corners_of(index: SplitIndex) -> CornerLabels:
    assert isinstance(index.labels, CornerLabels)
    assert len(index.labels) == len(index.boxes)
    return index.labels


# COCO


@pytest.mark.parametrize(
    "label",
    [
        {"segmentation": [RING]},
        {"segmentation": [[*RING, *RING[:2]]]},  # closed
        {"corners": RING},
        {"corners": RING, "segmentation": [[1, 1, 9, 1, 5, 9]]},  # the outline of the object itself
    ],
)
def test_four_corners_of_an_annotation(coco_set: Write, label: dict[str, Any]) -> None:
    index = read(coco_set([{**PLACE, **label}]), "coco")
    assert index.boxes.tolist() == [[5, 10, 30, 30]]  # around the corners, whatever bbox says
    box = corners_of(index).boxes()[0]
    np.testing.assert_allclose(box, [17.5, 20, math.hypot(20, 10), math.hypot(5, 10), math.atan2(10, 20)], atol=1e-9)


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ({}, "has neither 'corners' nor 'segmentation'; allowed: 'corners' with 8 numbers"),
        ({"segmentation": [[1, 1, 9, 1, 5, 9]]}, "segmentation has rings of 3 points; allowed: 'corners' with 8 num"),
        ({"segmentation": [RING, RING]}, "segmentation has rings of 4, 4 points; allowed"),
        ({"segmentation": []}, "segmentation has rings of no points"),
        ({"segmentation": {"counts": "x", "size": [1, 1]}}, "segmentation is a mask in run lengths"),
        ({"corners": RING[:6]}, r"corners is \[10.0, .*\]; allowed: 'corners' with 8 numbers"),
        ({"corners": [*RING[:7], None]}, r"its corners are \[10.0, .*None\]; 8 finite numbers in pixels"),
        ({"corners": [*RING[:7], math.nan]}, ".*nan.; 8 finite numbers in pixels"),
        ({"bbox": [17.5, 20, 22, 11, 0.46]}, "bbox has 5 numbers, .* tools disagree about unit and direction"),
    ],
)
def test_annotations_that_are_refused(coco_set: Write, label: dict[str, Any], text: str) -> None:
    with pytest.raises(DataError, match=rf"annotation 100 \(a.jpg\): {text}"):
        read(coco_set([{**PLACE, **label}]), "coco")


def test_a_crowd_needs_no_corners(coco_set: Write) -> None:
    crowd = {**PLACE, "bbox": [4, 5, 20, 10], "iscrowd": 1, "segmentation": {"counts": "x", "size": [48, 64]}}
    index = read(coco_set([{**PLACE, "corners": RING}, crowd]), "coco")
    assert index.crowd.tolist() == [False, True]
    np.testing.assert_allclose(corners_of(index).boxes()[1], [14, 10, 20, 10, 0], atol=1e-9)
    assert index.boxes[1].tolist() == [4, 5, 24, 15]


def test_corners_outside_the_picture_stay_and_a_line_is_dropped(coco_set: Write) -> None:
    beyond = [-10.0, 4.0, 20.0, 4.0, 20.0, 16.0, -10.0, 16.0]
    line = [4.0, 4.0, 12.0, 8.0, 20.0, 12.0, 28.0, 16.0]
    away = [100.0, 4.0, 120.0, 4.0, 120.0, 16.0, 100.0, 16.0]
    index = read(coco_set([{**PLACE, "corners": ring} for ring in (beyond, line, away)]), "coco")
    assert corners_of(index).corners.reshape(-1, 8).tolist() == [beyond]
    assert index.boxes.tolist() == [[0, 4, 20, 16]]  # what is drawn and counted
    assert any(note.startswith("1 box of zero size dropped: annotation 101 (a.jpg); ") for note in index.notes)
    outside = "1 box wholly outside the picture dropped: annotation 102 (a.jpg); "
    assert any(note.startswith(outside) for note in index.notes)
    assert not any("clipped" in note for note in index.notes)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (0, 2, 1, 3), (2, 0, 3, 1)])
def test_three_equal_corners_are_a_line_and_three_different_ones_are_not(order: tuple[int, ...]) -> None:
    def box(points: list[tuple[float, float]]) -> tuple[float, ...]:
        parsed = PARSER.coco({"corners": [v for i in order for v in points[i]]})
        assert parsed.box is not None
        return parsed.box

    assert box([(5, 5), (5, 5), (9, 9), (5, 5)]) in ((5, 5, 5, 5), (9, 9, 9, 9))
    assert box([(5, 5), (5, 5), (9, 9), (9, 5)]) == (5, 5, 9, 9)


# YOLO


def test_fractions_become_corners_in_pixels(yolo_set: Write) -> None:
    x, y = np.array(vertices((32.0, 24.0, 30.0, 10.0, 0.6))).T
    line = " ".join(f"{value:.9f}" for pair in zip(x / 64, y / 48, strict=True) for value in pair)
    index = read(yolo_set(f"1 {line}\n"), "yolo")
    np.testing.assert_allclose(corners_of(index).boxes(), [[32, 24, 30, 10, 0.6]], atol=1e-5)
    np.testing.assert_allclose(index.boxes, [[x.min(), y.min(), x.max(), y.max()]], atol=1e-4)
    assert index.classes.tolist() == [1]


def test_corners_may_leave_the_picture_by_its_size(yolo_set: Write) -> None:
    index = read(yolo_set("0 -1 0.25 0.5 0.25 0.5 2 -1 2\n"), "yolo")
    assert corners_of(index).corners.reshape(-1).tolist() == [-64, 12, 32, 12, 32, 96, -64, 96]
    assert index.boxes.tolist() == [[0, 12, 32, 48]]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("0 0.5 0.5 0.25 0.5", "5 fields; allowed: 9 .class x1 y1 x2 y2 x3 y3 x4 y4., as task=obb needs the corners"),
        ("0 0.1 0.1 0.9 0.1 0.5 0.9", "7 fields; allowed: 9"),
        ("0 12 10 30 10 30 20 12 20", "coordinate 12; allowed: -1 to 2, fractions of the picture, which corners may"),
        ("0 0.1 0.1 0.9 0.1 0.9 0.5 -1.01 0.5", "coordinate -1.01; allowed: -1 to 2"),
        ("0 0.1 0.1 0.9 0.1 0.9 0.5 nan 0.5", "coordinate nan; allowed: -1 to 2"),
    ],
)
def test_lines_that_are_refused(yolo_set: Write, line: str, text: str) -> None:
    with pytest.raises(DataError, match=rf"a.txt line 1: .*{text}"):
        read(yolo_set(line), "yolo")


# the drawn set


def test_the_drawn_set_has_boxes_around_what_it_draws() -> None:
    options = {"num_train": 12, "num_val": 1, "image_size": 96}
    index = read_split(DataConfig(format="shapes", options=options), "train", LabelKind.CORNERS)
    plain = read_split(DataConfig(format="shapes", options=options), "train")
    boxes = corners_of(index).boxes()
    assert (boxes[:, 2] >= boxes[:, 3]).all()
    assert len(np.unique(boxes[:, 4].round(2))) > len(boxes) / 2
    # The tight upright box of an object lies in the upright box around its rotated one, nearly.
    around = np.concatenate((corners_of(index).corners.min(1), corners_of(index).corners.max(1)), 1)
    assert (around[:, :2] <= plain.boxes[:, :2] + 0.1).all()
    assert (around[:, 2:] >= plain.boxes[:, 2:] - 0.1).all()
    assert plain.labels is None


def test_the_parser_is_asked_for_pixels_and_nothing_else() -> None:
    with pytest.raises(UnusableLabelError, match="bbox is"):
        PARSER.coco({"iscrowd": 1, "bbox": [1, 2, "a", 4]})
    assert PARSER.pack([]) is not None
