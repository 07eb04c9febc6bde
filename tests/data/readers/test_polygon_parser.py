"""Outlines from files: every form of COCO's segmentation, YOLO's polygons, and what has no outline."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pycocotools import mask as coco_mask

from lucid_yolo.config.errors import DataError
from lucid_yolo.config.schema import DataConfig
from lucid_yolo.data.check import check_data
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import LabelKind
from lucid_yolo.data.labels.polygons import PolygonLabels
from lucid_yolo.data.readers import read_split
from lucid_yolo.data.readers.parsers.base import on_a_line

Write = Callable[..., Path]
WIDTH, HEIGHT = 64, 48
RING = [4.0, 5.0, 24.0, 5.0, 24.0, 15.0]
BOX = {"image_id": 1, "category_id": 1, "bbox": [4, 5, 20, 10], "area": 150}


def read(root: Path, *, format: str = "coco") -> SplitIndex:
    return read_split(DataConfig(format=format, root=str(root)), "train", LabelKind.POLYGONS)


def labels_of(index: SplitIndex) -> PolygonLabels:
    assert isinstance(index.labels, PolygonLabels)
    assert len(index.labels) == len(index.boxes)
    return index.labels


def frame_with_island() -> NDArray[np.bool_]:
    mask = np.zeros((HEIGHT, WIDTH), np.bool_)
    mask[4:40, 8:56], mask[12:32, 16:48], mask[16:28, 20:44] = True, False, True
    return mask


def compressed(mask: NDArray[np.bool_]) -> dict[str, Any]:
    rle = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": rle["size"], "counts": rle["counts"].decode("ascii")}


def listed(mask: NDArray[np.bool_]) -> dict[str, Any]:
    flat = np.concatenate([[False], mask.T.ravel()])
    edges = np.concatenate([[0], np.flatnonzero(flat[1:] != flat[:-1]), [mask.size]])
    return {"size": list(mask.shape), "counts": np.diff(edges).tolist()}


def drawn(labels: PolygonLabels, row: int) -> NDArray[np.bool_]:
    """A mask at the size of the picture."""
    one = labels.take(np.array([row]))
    rows = one.moved(one.points() * 4, mirrored=False).target_rows(256)
    return np.unpackbits(rows[0], axis=-1)[:HEIGHT, :WIDTH].astype(np.bool_)


def test_every_form_of_a_segmentation(coco_set: Write) -> None:
    mask = frame_with_island()
    forms = [[RING, [30, 30, 40, 30, 40, 40, 30, 40]], compressed(mask), listed(mask)]
    annotations = [{**BOX, "segmentation": form, "iscrowd": int(form is forms[2])} for form in forms]
    labels = labels_of(index := read(coco_set(annotations)))
    assert index.crowd.tolist() == [False, False, True]
    np.testing.assert_array_equal(index.boxes[0], [4, 5, 24, 15])
    assert np.diff(labels.objects).tolist() == [2, 3, 3]
    assert labels.holes.tolist() == [False, False, False, True, False, False, True, False]
    np.testing.assert_array_equal(labels.xy[:3], np.array(RING).reshape(3, 2))
    for row in (1, 2):
        np.testing.assert_array_equal(drawn(labels, row), mask)
        assert labels.coco_rle(row, HEIGHT, WIDTH)["counts"] == compressed(mask)["counts"].encode("ascii")
    expected = coco_mask.merge(coco_mask.frPyObjects(forms[0], HEIGHT, WIDTH))
    assert labels.coco_rle(0, HEIGHT, WIDTH) == expected


@pytest.mark.parametrize(
    ("segmentation", "message"),
    [
        (None, "segmentation is None; task=segment needs a polygon or an RLE"),
        ([], "segmentation is empty; task=segment needs a polygon or an RLE"),
        ("x", "segmentation is 'x'; task=segment needs"),
        (RING, r"segmentation\[0\] is 4.0; a list of polygons, each \[x1, y1, x2, y2, ...\], is needed"),
        ([RING, [1, 2, 3, 4]], r"segmentation\[1\] has 4 numbers; x and y of at least 3 corners are needed"),
        ([[*RING, 3]], r"segmentation\[0\] has 7 numbers"),
        ([[*RING, "3", 3]], r"segmentation\[0\] holds something else than finite numbers"),
        ([[*RING, 3, float("inf")]], r"segmentation\[0\] holds something else than finite numbers"),
        ([[*RING, 1e7, 3]], r"segmentation\[0\] .* finite numbers in pixels, none beyond 1048576"),
        ([[30, 30, 50, 30, 50, 40]], r"segmentation reaches from 30, 30 to 50, 40, and bbox is \[4, 5, 20, 10\]"),
        ({"size": [HEIGHT, WIDTH], "counts": [HEIGHT * WIDTH]}, "the RLE of its segmentation covers no pixel"),
        ({"size": [HEIGHT, WIDTH], "counts": [7]}, "the counts of its RLE cover 7 pixels"),
        ({"size": [4, 5], "counts": [2, 18]}, "its label is made for a picture of 5x4 pixels, its image has 64x48"),
    ],
)
def test_refused_segmentations_are_named(coco_set: Write, segmentation: Any, message: str) -> None:
    annotations = [{**BOX, "segmentation": [RING]}, {**BOX, "segmentation": segmentation}]
    with pytest.raises(DataError, match=rf"annotation 101 \(a.jpg\): {message}"):
        read(coco_set(annotations))


@pytest.mark.parametrize(
    "rings",
    [
        [[4, 5, 9, 5, 14, 5]],
        [[4, 5, 14, 10, 24, 15]],  # a diagonal
        [[4, 5, 10.67, 8.33, 24, 15, 17.33, 11.67]],  # the same, rounded to two decimals
        [[4, 5, 4, 5, 4, 5]],
        [[4, 5, 9, 5, 14, 5], [4, 15, 14, 15, 24, 15]],  # two lines
    ],
)
def test_an_outline_that_covers_nothing_is_dropped(coco_set: Write, rings: list[list[float]]) -> None:
    index = read(coco_set([{**BOX, "segmentation": [RING]}, {**BOX, "segmentation": rings}]))
    assert len(labels_of(index)) == 1
    assert index.notes[0] == (
        "1 box or outline of zero size dropped: annotation 101 (a.jpg); give each a width and a height, or remove it"
    )


@pytest.mark.parametrize(
    "rings",
    [
        [[4, 5, 24, 5, 24, 5.5]],  # 5 square pixels, as thin as a box of half a pixel, which is kept too
        [[4, 5, 24, 15, 24, 5, 4, 15]],  # crosses itself: its two halves have areas of opposite sign
        [[4, 5, 14, 10, 24, 15], RING],  # one part of it is enough
    ],
)
def test_an_outline_that_covers_something_stays(coco_set: Write, rings: list[list[float]]) -> None:
    index = read(coco_set([{**BOX, "segmentation": rings}]))
    assert len(labels_of(index)) == 1
    assert not any("dropped" in note for note in index.notes)


def test_a_line_of_a_label_file_that_covers_nothing_is_named(yolo_set: Write) -> None:
    triangle, diagonal = "1 0.25 0.5 0.75 0.5 0.5 0.75", "0 0.1 0.2 0.233333 0.3 0.5 0.5"
    root = yolo_set(f"{triangle}\n{diagonal}\n")
    index = read(root, format="yolo")
    assert index.classes.tolist() == [1]
    assert re.search(r"^1 box or outline of zero size dropped: .*a.txt line 2; give each", "\n".join(index.notes), re.M)
    report = str(check_data(DataConfig(format="yolo", root=str(root)), LabelKind.POLYGONS).splits[0].notes)
    assert "a.txt line 2; give each a width and a height, or remove it" in report


@given(
    ends=st.tuples(*[st.floats(-1000, 1000)] * 4),
    places=st.lists(st.floats(0, 1), min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_points_between_two_others_lie_on_a_line_and_one_beside_them_does_not(
    ends: tuple[float, float, float, float], places: list[float], order: random.Random
) -> None:
    start, end = np.array(ends[:2]), np.array(ends[2:])
    points = [start, end, *(start + place * (end - start) for place in places)]
    order.shuffle(points)
    assert on_a_line(*np.array(points).T.tolist(), rounding=1e-6)
    length = float(np.abs(end - start).max())
    assume(length > 1e-3)
    across = np.array([start[1] - end[1], end[0] - start[0]]) / length  # a vector at a right angle, about as long as 1
    beside = [*points, points[-1] + 0.01 * length * across]
    order.shuffle(beside)
    assert not on_a_line(*np.array(beside).T.tolist(), rounding=1e-6)


def test_a_missing_segmentation_is_named_with_its_annotation(coco_set: Write) -> None:
    with pytest.raises(DataError, match=r"annotation 100 \(a.jpg\): has no 'segmentation'; task=segment needs"):
        read(coco_set([BOX]))


def test_yolo_polygons(yolo_set: Write) -> None:
    root = yolo_set("1 0.25 0.5 0.75 0.5 0.5 0.75\n", "0 0 0 1 0 1 1 0 1\n")
    labels = labels_of(index := read(root, format="yolo"))
    np.testing.assert_allclose(index.boxes, [[16, 24, 48, 36], [0, 0, 64, 48]])
    assert index.classes.tolist() == [1, 0]
    np.testing.assert_allclose(labels.xy[:3], [[16, 24], [48, 24], [32, 36]])
    assert labels.rings.tolist() == [0, 3, 7]
    assert not any("read as the box" in note for note in index.notes)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0 0.5 0.5 0.25 0.5", r"line 1: 5 fields; the line holds a box; task=segment needs the corners of a polygon"),
        ("0 0.5 0.5 0.25 0.5 0.5", r"line 1: 6 fields; task=segment needs the corners of a polygon: 7, 9"),
        ("0 0.5 0.5 0.25 0.5 0.5 1.5", r"line 1: coordinate 1.5; allowed: 0 to 1"),
    ],
)
def test_refused_lines(yolo_set: Write, line: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(yolo_set(f"{line}\n"), format="yolo")


def test_lines_with_key_points_are_no_polygons(yolo_set: Write) -> None:
    yaml = "path: .\ntrain: images/train\nval: images/val\nnc: 2\nnames: [cat, dog]\nkpt_shape: [1, 2]\n"
    with pytest.raises(DataError, match=r"7 fields; the line holds a box and key points \(kpt_shape of data.yaml\)"):
        read(yolo_set("0 0.5 0.5 0.25 0.5 0.5 0.5\n", yaml=yaml), format="yolo")
