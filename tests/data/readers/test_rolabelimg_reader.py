"""roLabelImg's XML: real files, boxes by hand, and files that are refused."""

from __future__ import annotations

import json
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
from lucid_yolo.data.readers import read_split, read_splits
from tests.data.disk import write_picture

Write = Callable[..., Path]
ROTATED = "<robndbox><cx>20</cx><cy>16</cy><w>10</w><h>4</h><angle>0.5</angle></robndbox>"
UPRIGHT = "<bndbox><xmin>4</xmin><ymin>6</ymin><xmax>12</xmax><ymax>10</ymax></bndbox>"


def one(box: str = ROTATED, name: str = "car", rest: str = "") -> str:
    return f"<object>\n<name>{name}</name>{rest}{box}</object>\n"


def read(root: Path, split: Any = "train", **keys: Any) -> SplitIndex:
    return read_split(DataConfig(format="rolabelimg", root=str(root), **keys), split, LabelKind.CORNERS)


@pytest.fixture
def xml_set(tmp_path: Path) -> Write:
    """Write a data set of one 64x48 picture a split, the same labels in both; returns its root."""

    def write(objects: str = one(), *, size: tuple[int, int] = (64, 48)) -> Path:
        root = tmp_path / "set"
        document = (
            f"<annotation>\n<size><width>{size[0]}</width><height>{size[1]}</height></size>\n{objects}</annotation>"
        )
        for split in ("train", "val"):
            write_picture(root / "JPEGImages" / f"{split}.jpg")
            for file, text in ((f"Annotations/{split}.xml", document), (f"ImageSets/Main/{split}.txt", f"{split} 1\n")):
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                (root / file).write_text(text)
        return root

    return write


def test_rotated_and_upright_boxes(xml_set: Write) -> None:
    objects = one() + one(UPRIGHT, "bus") + one(rest="<difficult>1</difficult>")
    index = read(xml_set(objects))
    assert index.class_names == ("bus", "car")
    assert index.classes.tolist() == [1, 0, 1]
    assert index.crowd.tolist() == [False, False, True]
    assert isinstance(index.labels, CornerLabels)
    expected = [[20, 16, 10, 4, 0.5], [8, 8, 8, 4, 0], [20, 16, 10, 4, 0.5]]
    np.testing.assert_allclose(index.labels.boxes(), expected, atol=1e-9)


def test_real_files_equal_their_json(test_data: Path) -> None:
    root = test_data / "hituav_obb"
    splits = read_splits(
        DataConfig(format="rolabelimg", root=str(root), options={"ignore": ["DontCare"]}), LabelKind.CORNERS
    )
    for split, index in zip(("train", "val"), splits, strict=True):
        document = json.loads((root / "rotate_json" / f"{split}.json").read_text())
        names = {c["id"]: c["name"] for c in document["categories"]}
        assert index.class_names == ("Bicycle", "Car", "OtherVehicle", "Person")
        assert isinstance(index.labels, CornerLabels)
        boxes = index.labels.boxes()
        for i, path in enumerate(index.paths):
            image = next(one["id"] for one in document["images"] if one["filename"] == Path(path).name)
            expected = [(names[a["category_id"]], a["bbox"]) for a in document["annotations"] if a["image_id"] == image]
            kept = [row for row in expected if row[0] != "DontCare"]
            rows = np.arange(index.rows(i).start, index.rows(i).stop)
            rows = rows[~index.crowd[rows]]
            assert [index.class_names[c] for c in index.classes[rows]] == [name for name, _ in kept]
            truth = np.array([box for _, box in kept]).reshape(-1, 5)
            np.testing.assert_allclose(boxes[rows, :2], truth[:, :2], atol=1e-6)
            np.testing.assert_allclose(boxes[rows, 2:4].prod(1), truth[:, 2:4].prod(1), rtol=1e-6)
            half_turns = (boxes[rows, 4] - truth[:, 4]) / (math.pi / 2)
            np.testing.assert_allclose(half_turns, half_turns.round(), atol=1e-6)
    train = splits[0]
    assert int(train.crowd.sum()) == 4  # the one DontCare, for each class
    assert "1 difficult or ignored object: no positives in training, ignored in evaluation" in train.notes


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        (one(ROTATED.replace("0.5", "45")), "line 3: angle is 45; radians are needed, -6.28 to 6.28"),
        (one(ROTATED.replace("<w>10", "<w>-1")), "line 3: w and h are -1 and 4; they must not be negative"),
        (one(ROTATED.replace("<w>10</w>", "")), "line 3: robndbox has no w; it needs cx, cy, w, h, angle"),
        (one(ROTATED.replace("<w>10", "<w>ten")), "line 3: w is 'ten'; a finite number is needed"),
        (one(UPRIGHT.replace("<xmax>12", "<xmax>2")), "line 3: bndbox is 4, 6, 2, 10; the maximum must not lie below"),
        (one("") + one(), "line 3: the object has no box; exactly one robndbox or bndbox is needed"),
        (one() + one(ROTATED + UPRIGHT), "line 5: the object has robndbox, bndbox; exactly one"),
        (one(name=""), "line 3: the object has no name; the class is needed"),
        (one(rest="<difficult>maybe</difficult>"), "line 3: difficult is 'maybe'; allowed: 0 and 1"),
        ("<object>", "not XML: mismatched tag in line 3, column 11"),
    ],
)
def test_files_that_are_refused(xml_set: Write, objects: str, text: str) -> None:
    with pytest.raises(DataError, match=rf"train.xml:? {text}") as caught:
        read(xml_set(objects))
    assert "Traceback" not in str(caught.value)


def test_a_size_that_the_picture_does_not_have(xml_set: Write) -> None:
    with pytest.raises(DataError, match=r"train.xml: the labels say 48x64, the file has 64x48 pixels"):
        read(xml_set(size=(48, 64)))
    assert read(xml_set(size=(0, 0))).sizes.tolist() == [[64, 48]]  # what tools write that do not know it


def test_lists_and_what_they_name(xml_set: Write) -> None:
    root = xml_set()
    (root / "mine.txt").write_text("train\nval\n")
    assert len(read(root, train="mine.txt")) == 2
    (root / "mine.txt").write_text("train\nlost\n")
    with pytest.raises(DataError, match=r"mine.txt: line 2: lost: .*Annotations/lost.xml does not exist"):
        read(root, train="mine.txt")
    (root / "mine.txt").write_text("\n")
    with pytest.raises(DataError, match=r"mine.txt: the list is empty"):
        read(root, train="mine.txt")
    with pytest.raises(DataError, match=r"test.txt; its splits: train, val; val=FILE of lucid-yolo validate"):
        read(root, "test")
    (root / "mine.txt").write_text("val\n")
    assert len(read(root, "test", test="mine.txt")) == 1  # what val=mine.txt sets
    (root / "JPEGImages" / "train.jpg").unlink()
    with pytest.raises(DataError, match=r"set/JPEGImages: no image for 1 label file of 1: train"):
        read(root)
