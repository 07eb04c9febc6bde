"""DOTA's text files: real ones, layouts, classes, and lines that are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lucid_yolo.config.compose import compose, to_root
from lucid_yolo.config.errors import ConfigError, DataError
from lucid_yolo.config.schema import BadImages, DataConfig
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import LabelKind
from lucid_yolo.data.labels.corners import CornerLabels
from lucid_yolo.data.readers import read_split, read_splits
from lucid_yolo.data.sample import learnable
from tests.data.disk import write_picture

Write = Callable[..., Path]
SHIP = "10 10 30 20 25 30 5 20 ship 0\n"
PLANE = "40 8 60 8 60 18 40 18 plane 0\n"


def read(root: Path, split: Any = "train", labels: LabelKind = LabelKind.CORNERS, **keys: Any) -> SplitIndex:
    return read_split(DataConfig(format="dota", root=str(root), **keys), split, labels)


@pytest.fixture
def dota_set(tmp_path: Path) -> Write:
    """Write a data set of one 64x48 picture a split; returns its root."""

    def write(
        train: str = SHIP + PLANE, val: str = SHIP, *, labels: str = "{}/labelTxt", images: str = "{}/images"
    ) -> Path:
        root = tmp_path / "set"
        for split, text in (("train", train), ("val", val)):
            write_picture(root / images.format(split) / f"{split}.png")
            file = root / labels.format(split) / f"{split}.txt"
            file.parent.mkdir(parents=True)
            file.write_text(text)
        return root

    return write


def test_lines_become_objects(dota_set: Write) -> None:
    text = "imagesource:GoogleEarth\ngsd:0.146\n" + SHIP + "\n" + PLANE.replace(" 0\n", " 1\n") + "4 4 9 4 9 9 4 9 ship"
    index = read(dota_set(text))
    assert (index.class_names, index.category_ids) == (("plane", "ship"), (0, 1))
    assert index.classes.tolist() == [1, 0, 1]
    assert index.crowd.tolist() == [False, True, False]
    assert isinstance(index.labels, CornerLabels)
    np.testing.assert_array_equal(index.labels.corners[0], [[10, 10], [30, 20], [25, 30], [5, 20]])
    assert index.boxes.tolist() == [[5, 10, 30, 30], [40, 8, 60, 18], [4, 4, 9, 9]]
    assert [Path(path).name for path in index.paths] == ["train.png"]
    assert "1 difficult or ignored object: no positives in training, ignored in evaluation" in index.notes
    assert len(learnable(index).boxes) == 2


def test_splits_have_the_classes_of_both(dota_set: Write) -> None:
    train, val = read_splits(DataConfig(format="dota", root=str(dota_set())), LabelKind.CORNERS)
    assert train.class_names == val.class_names == ("plane", "ship")
    assert "1 of 2 classes have no object: plane" in val.notes


def test_detection_reads_the_boxes_around_the_corners(dota_set: Write) -> None:
    index = read(dota_set(), labels=LabelKind.BOXES)
    assert index.labels is None
    assert index.boxes.tolist() == [[5, 10, 30, 30], [40, 8, 60, 18]]


@pytest.mark.parametrize(
    ("labels", "images"),
    [
        ("{}/labelTxt", "{}/images"),
        ("{}/labelTxt-v1.5", "{}/images"),
        ("{}/annfiles", "{}/images"),
        ("labelTxt/{}", "images/{}"),
    ],
)
def test_layouts(dota_set: Write, labels: str, images: str) -> None:
    assert len(read(dota_set(labels=labels, images=images), "val").boxes) == 1


def test_folders_that_are_named(dota_set: Write) -> None:
    root = dota_set(labels="a/{}", images="b/{}")
    keys = {
        f"{split}{kind}": f"{folder}/{split}"
        for split in ("train", "val")
        for kind, folder in (("", "a"), ("_images", "b"))
    }
    assert len(read(root, **keys).boxes) == 2
    with pytest.raises(DataError, match=r"no folder of label files for the train split; looked for train/labelTxt"):
        read(root)
    with pytest.raises(DataError, match=r"data.train=a/train/train.txt: .* is a file; a folder of label"):
        read(root, train="a/train/train.txt")


def test_a_test_split_that_is_missing_is_named_with_those_that_are_there(dota_set: Write) -> None:
    root = dota_set()
    advice = r"for the test split; .*; its splits: train, val; val=FOLDER of lucid-yolo validate names one"
    with pytest.raises(DataError, match=advice):
        read(root, "test")
    assert len(read(root, "test", test="val/labelTxt").boxes) == 1  # what val=val/labelTxt sets


def test_two_versions_of_the_labels_are_ambiguous(dota_set: Write) -> None:
    root = dota_set()
    (root / "train" / "labelTxt-v1.0").mkdir()
    with pytest.raises(DataError, match=r"several times a folder of label .*labelTxt-v1.0; data.train=FOLDER picks"):
        read(root)
    assert len(read(root, train="train/labelTxt").boxes) == 2


def test_images_without_labels_are_not_part_of_the_split_and_labels_need_an_image(dota_set: Write) -> None:
    root = dota_set()
    write_picture(root / "train" / "images" / "other.png")
    assert len(read(root)) == 1
    (root / "train" / "labelTxt" / "gone.txt").write_text(SHIP)
    with pytest.raises(DataError, match=r"images: no image for 1 label file of 2: gone; data.train_images=FOLDER"):
        read(root)
    (root / "train" / "labelTxt" / "gone.txt").unlink()
    write_picture(root / "train" / "images" / "train.jpg")
    with pytest.raises(DataError, match=r"images: several images of one name: train.jpg, train.png"):
        read(root)


def test_an_empty_file_is_a_background_and_a_bad_image_follows_the_policy(dota_set: Write) -> None:
    root = dota_set()
    write_picture(root / "train" / "images" / "empty.png")
    (root / "train" / "labelTxt" / "empty.txt").write_text("imagesource:x\n")
    index = read(root)
    assert index.offsets.tolist() == [0, 0, 2]
    assert "1 of 2 images have no objects (backgrounds)" in index.notes
    (root / "train" / "images" / "empty.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"empty\.png"):
        read(root)
    assert read(root, bad_images=BadImages.SKIP).offsets.tolist() == [0, 0, 2]


# classes


def test_listed_classes_decide_the_order_and_what_is_allowed(dota_set: Write) -> None:
    root = dota_set()
    index = read(root, options={"classes": ["ship", "harbor", "plane"]})
    assert index.class_names == ("ship", "harbor", "plane")
    assert index.classes.tolist() == [0, 2]
    with pytest.raises(DataError, match=r"train.txt line 2: class 'plane'; allowed: ship. data.options.classes lists"):
        read(root, options={"classes": ["ship"]})


def test_an_ignored_name_is_a_region_for_every_class(dota_set: Write) -> None:
    index = read(dota_set(SHIP + PLANE + "1 1 9 1 9 9 1 9 mist 0\n"), options={"ignore": ["mist"]})
    assert index.class_names == ("plane", "ship")
    assert index.classes.tolist() == [1, 0, 0, 1]
    assert index.crowd.tolist() == [False, False, True, True]
    assert "1 difficult or ignored object: no positives in training, ignored in evaluation" in index.notes
    assert index.num_crowds == 1


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"ignore": ["mist"]}, DataError, "ignore: no object is named mist; names in the label files: plane, ship"),
        ({"classes": ["ship", "plane"], "ignore": ["ship"]}, ConfigError, "ignore: ship also in data.options.classes"),
        ({"ignore": "ship"}, ConfigError, "data.options.ignore='ship': a list of names is needed"),
        ({"classes": ["ship", "ship"]}, ConfigError, "a name is there twice"),
        ({"class": ["ship"]}, ConfigError, "data.options.class: .* did you mean 'classes'"),
        ({"ignore": ["ship", "plane"]}, DataError, "the label files have no object, so the classes are unknown"),
    ],
)
def test_options_that_are_refused(dota_set: Write, options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        read(dota_set(), options=options)


@pytest.mark.parametrize("format_", ["dota", "rolabelimg"])
def test_the_command_line_sets_the_options(format_: str) -> None:
    chosen = ["data.options.ignore=[DontCare]", "data.options.classes=[car,bus]"]
    options = to_root(compose([f"data={format_}", "task=obb", "data.root=x", *chosen])).data.options
    assert (options["ignore"], options["classes"]) == (["DontCare"], ["car", "bus"])


# lines


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "1 2 3 4 5 6 7 8",
            "8 fields; allowed: 10 .x1 y1 x2 y2 x3 y3 x4 y4 category difficult., or 9 without",
        ),
        ("1 1 9 1 9 9 1 9 large vehicle 0", "11 fields; allowed: 10"),
        ("1 1 9 1 9 9 1 9 large vehicle", "difficult is 'vehicle'; allowed: 0 and 1 .a category is one word."),
        ("1 1 9 1 9 9 1 9 ship 2", "difficult is '2'; allowed: 0 and 1"),
        ("1 1 9 1 9 9 1 inf ship 0", "coordinate 'inf'; a finite number in pixels is needed"),
        ("1 1 9 1 9 9 ship 9 1 0", "coordinate 'ship'; a finite number in pixels is needed"),
        ("gsd:0.1", "1 fields; allowed: 10"),  # not below an object
    ],
)
def test_lines_that_are_refused(dota_set: Write, line: str, text: str) -> None:
    with pytest.raises(DataError, match=rf"train.txt line 3: {text}"):
        read(dota_set("imagesource:x\n" + SHIP + line))


def test_all_problems_at_once(dota_set: Write) -> None:
    with pytest.raises(DataError, match=r"^2 problems in .*labelTxt:\n.* line 1: .*\n.* line 2: "):
        read(dota_set("1 1 9\n2 2 9\n" + SHIP))


def test_corners_beyond_the_picture_are_kept(dota_set: Write) -> None:
    index = read(dota_set("-20 10 30 10 30 20 -20 20 ship 0\n"))
    assert isinstance(index.labels, CornerLabels)
    np.testing.assert_allclose(index.labels.boxes(), [[5, 15, 50, 10, 0]], atol=1e-9)
    assert index.boxes.tolist() == [[0, 10, 30, 20]]


def test_real_files(test_data: Path, tmp_path: Path) -> None:
    source = test_data / "hituav_obb"
    for split in ("train", "val"):
        for folder, kind, suffix in (("labelTxt", "converted/labelTxt", "txt"), ("images", "JPEGImages", "jpg")):
            (tmp_path / split / folder).mkdir(parents=True)
            for name in (source / "ImageSets" / "Main" / f"{split}.txt").read_text().split():
                (tmp_path / split / folder / f"{name}.{suffix}").symlink_to(source / kind / f"{name}.{suffix}")
    train, val = read_splits(DataConfig(format="dota", root=str(tmp_path)), LabelKind.CORNERS)
    assert (len(train), len(val)) == (34, 13)
    assert train.class_names == ("Bicycle", "Car", "DontCare", "OtherVehicle", "Person")
    counts = np.bincount(train.classes, minlength=5) + np.bincount(val.classes, minlength=5)
    assert counts.tolist() == [152, 488, 1, 8, 126]
    xml = read_splits(DataConfig(format="rolabelimg", root=str(source)), LabelKind.CORNERS)
    for mine, other in zip((train, val), xml, strict=True):
        order = [[Path(p).stem for p in other.paths].index(Path(path).stem) for path in mine.paths]
        rows = np.concatenate([np.arange(other.rows(i).start, other.rows(i).stop) for i in order])
        assert isinstance(mine.labels, CornerLabels)
        assert isinstance(other.labels, CornerLabels)
        np.testing.assert_allclose(mine.labels.corners, other.labels.corners[rows], atol=0.011)
        assert mine.classes.tolist() == other.classes[rows].tolist()
