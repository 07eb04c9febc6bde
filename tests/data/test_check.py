from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.schema import DataConfig
from lucid_yolo.data.check import DataReport, check_data
from tests.data.disk import write_picture

Write = Callable[..., Path]


def text_of(report: DataReport) -> str:
    console = Console(width=300, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(report.render())
    return console.export_text()


def test_bccd(test_data: Path) -> None:
    report = check_data(DataConfig(format="coco", root=str(test_data / "bccd")))
    assert report.ok
    train, val = report.splits
    assert (train.images, train.objects, val.images, val.objects) == (205, 2804, 87, 1137)
    # counted in the annotation files by category, less the two boxes of zero size (both RBC)
    for split in report.splits:
        document = json.loads((test_data / "bccd" / "converted" / f"instances_{split.name}.json").read_text())
        counts = np.bincount([a["category_id"] for a in document["annotations"]], minlength=4)[1:] - [1, 0, 0]
        assert split.class_counts.tolist() == counts.tolist()
        sides = sorted(np.sqrt(a["bbox"][2] * a["bbox"][3]) for a in document["annotations"] if a["area"] > 0)
        assert split.side_quantiles[3] == pytest.approx(np.median(sides), abs=0.1)
    text = text_of(report)
    assert "train: 1 box of zero size dropped: annotation 2288 (BloodImage_00343.jpg)" in text
    assert "No problems." in text


def test_backgrounds_and_crowds(test_data: Path) -> None:
    report = check_data(DataConfig(format="coco", root=str(test_data / "coco_open")))
    train, val = report.splits
    assert (train.backgrounds, train.crowd, train.objects) == (1, 9, 366 - 9)
    assert (val.backgrounds, val.crowd, val.objects) == (2, 7, 340 - 7)
    assert "and 50 classes more" in text_of(report)


def test_damaged_images_are_named_and_kept(coco_set: Write) -> None:
    root = coco_set()
    cut, empty = root / "train2017" / "a.jpg", root / "val2017" / "b.jpg"
    cut.write_bytes(cut.read_bytes()[:-100])
    empty.write_bytes(b"")
    before = cut.read_bytes()
    report = check_data(DataConfig(format="coco", root=str(root)))
    assert not report.ok
    assert [bad.path for split in report.splits for bad in split.bad_images] == [str(cut), str(empty)]
    text = text_of(report)
    assert "a.jpg: the JPEG file is truncated: it ends before its picture does" in text
    assert "b.jpg: the file is empty (0 bytes)" in text
    assert "2 images that cannot be decoded (data.bad_images=skip trains without them); no file was changed." in text
    assert cut.read_bytes() == before


@pytest.mark.parametrize("format_name", ["coco", "yolo"])
def test_a_split_with_wrong_labels_has_its_images_decoded(coco_set: Write, yolo_set: Write, format_name: str) -> None:
    if format_name == "coco":
        root = coco_set()
        file = root / "annotations" / "instances_val2017.json"
        document = json.loads(file.read_text())
        right = document["annotations"][0]
        document["annotations"] += [{**right, "id": 7, "category_id": 9}, {**right, "id": 8, "bbox": [1, 2, -3, 4]}]
        file.write_text(json.dumps(document))
        cut = root / "val2017" / "b.jpg"
    else:
        root = yolo_set()
        (root / "labels" / "val" / "a.txt").write_text("5 .5 .5 .1 .1\n0 .5 .5 .1\n")
        cut = root / "images" / "val" / "b.jpg"
    cut.write_bytes(cut.read_bytes()[:-100])
    report = check_data(DataConfig(format=format_name, root=str(root)))
    assert not report.ok
    assert [split.name for split in report.splits] == ["train"]
    assert [(split.name, [bad.path for bad in split.bad_images]) for split in report.refused] == [("val", [str(cut)])]
    text = text_of(report)
    assert "b.jpg: the JPEG file is truncated" in text
    assert text.rstrip().endswith(
        "3 problems: 2 of labels or splits and 1 image that cannot be decoded "
        "(data.bad_images=skip trains without them); no file was changed."
    )


def test_missing_images_do_not_hide_damaged_ones(coco_set: Write) -> None:
    root = coco_set()
    (root / "val2017" / "a.jpg").unlink()
    (root / "val2017" / "b.jpg").write_bytes(b"")
    report = check_data(DataConfig(format="coco", root=str(root)))
    text = text_of(report)
    assert "1 image file of 2 missing" in text
    assert "b.jpg: the file is empty (0 bytes)" in text
    assert "\n2 problems: 1 of labels or splits and 1 image that cannot be decoded" in text


def test_problems_of_both_splits_are_in_one_report(coco_set: Write) -> None:
    root = coco_set([{"image_id": 1, "category_id": 9, "bbox": [1, 2, 3, 4]}])
    report = check_data(DataConfig(format="coco", root=str(root)))
    assert not report.ok
    assert len(report.problems) == 2
    assert "instances_val2017.json: annotation 100 (a.jpg): category_id is 9; allowed: 1, 3" in text_of(report)


def test_one_readable_split_is_still_described(yolo_set: Write) -> None:
    root = yolo_set()
    (root / "labels" / "val" / "a.txt").write_text("5 .5 .5 .1 .1")
    report = check_data(DataConfig(format="yolo", root=str(root)))
    assert [split.name for split in report.splits] == ["train"]
    assert "class 5; allowed: 0 to 1" in text_of(report)


def test_turned_images_and_their_size(coco_set: Write) -> None:
    def declare(document: dict[str, Any]) -> None:
        document["images"][0].update(width=48, height=64)

    root = coco_set(change=declare)
    for split in ("train", "val"):
        write_picture(root / f"{split}2017" / "a.jpg", orientation=6)
    report = check_data(DataConfig(format="coco", root=str(root)))
    assert report.ok
    assert [len(split.turned) for split in report.splits] == [1, 1]
    assert (
        "train: 1 image with an EXIF orientation that exchanges width and height; data.exif_orientation=apply"
        in text_of(report)
    )
    for split in ("train", "val"):
        write_picture(root / f"{split}2017" / "a.jpg")
    assert "a.jpg: the labels say 48x64, the file has 64x48 pixels" in text_of(
        check_data(DataConfig(format="coco", root=str(root)))
    )


def test_splits_that_share_images_or_differ_in_classes(coco_set: Write) -> None:
    root = coco_set()
    config = DataConfig(format="coco", root=str(root), train_images="train2017", val_images="train2017")
    assert "val: 2 images also in the training split" in text_of(check_data(config))
    file = root / "annotations" / "instances_val2017.json"
    file.write_text(file.read_text().replace("dog", "wolf"))
    assert "the splits have different classes" in text_of(check_data(config))


def test_settings_that_do_not_exist_are_not_a_matter_of_data(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such reader"):
        check_data(DataConfig(format="voc", root=str(tmp_path)))
