from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pycocotools.coco import COCO

from lucid_yolo.config.errors import ConfigError, DataError
from lucid_yolo.config.schema import BadImages, DataConfig, ExifOrientation
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.readers import read_split, read_splits
from tests.data.disk import coco_document, write_picture

Write = Callable[..., Path]
OBJECT = {"image_id": 1, "category_id": 1, "bbox": [4, 5, 20, 10], "area": 150}


def read(root: Path, split: Any = "train", **keys: Any) -> SplitIndex:
    return read_split(DataConfig(format="coco", root=str(root), **keys), split)


def refused(root: Path, pattern: str, **keys: Any) -> str:
    with pytest.raises(DataError, match=pattern) as caught:
        read(root, **keys)
    return str(caught.value)


# real data


@pytest.mark.parametrize(
    ("split", "images", "objects", "flaw"),
    [("train", 205, 2805 - 1, "BloodImage_00343"), ("val", 87, 1138 - 1, "BloodImage_00338")],
)
def test_bccd(test_data: Path, split: str, images: int, objects: int, flaw: str) -> None:
    index = read(test_data / "bccd", split)
    assert (len(index), len(index.boxes)) == (images, objects)
    assert index.class_names == ("RBC", "WBC", "Platelets")
    assert index.category_ids == (1, 2, 3)
    assert any(re.search(rf"^1 box of zero size dropped: annotation \d+ \({flaw}.jpg\);", n) for n in index.notes)


@pytest.mark.parametrize("split", ["train", "val"])
def test_coco_open_equals_pycocotools(test_data: Path, split: str) -> None:
    index = read(test_data / "coco_open", split)
    truth = COCO(str(test_data / "coco_open" / "annotations" / f"instances_{split}2017.json"))
    assert index.image_ids.tolist() == list(truth.imgs)
    assert index.category_ids == tuple(truth.getCatIds())
    assert index.category_ids != tuple(range(1, 81))  # the ids have gaps
    for i, image_id in enumerate(index.image_ids.tolist()):
        expected = truth.loadAnns(truth.getAnnIds(image_id))
        rows = index.rows(i)
        xywh = np.array([a["bbox"] for a in expected]).reshape(-1, 4)
        xyxy = np.concatenate((xywh[:, :2], xywh[:, :2] + xywh[:, 2:]), axis=1)
        np.testing.assert_allclose(index.boxes[rows], xyxy, atol=0.5)
        assert [index.category_ids[c] for c in index.classes[rows]] == [a["category_id"] for a in expected]
        assert index.crowd[rows].tolist() == [bool(a["iscrowd"]) for a in expected]
        np.testing.assert_allclose(index.areas[rows], [a["area"] for a in expected], rtol=1e-6)
        image = truth.imgs[image_id]
        assert index.sizes[i].tolist() == [image["width"], image["height"]]
        assert Path(index.paths[i]).is_file()
    assert int(index.crowd.sum()) == {"train": 9, "val": 7}[split]
    backgrounds = {"train": "1 of 24", "val": "2 of 26"}[split]
    assert f"{backgrounds} images have no objects (backgrounds)" in index.notes


# layouts


@pytest.mark.parametrize(
    ("annotations", "images"),
    [
        ("annotations/instances_{}2017.json", "{}2017"),
        ("annotations/instances_{}2017.json", "images/{}2017"),
        ("annotations/instances_{}.json", "images/{}"),
        ("annotations/{}.json", "{}"),
        ("annotations/{}.json", "images"),
        ("{}.json", "."),
        ("instances_{}.json", "data"),
        ("converted/instances_{}.json", "JPEGImages"),
        ("{}/_annotations.coco.json", "{}"),
        ("{}/_annotations.coco.json", "{}/images"),
        ("{}/labels.json", "{}/data"),
    ],
)
@pytest.mark.parametrize("val_name", ["val", "valid"])
def test_common_layouts_are_found(tmp_path: Path, annotations: str, images: str, val_name: str) -> None:
    for split in ("train", val_name):
        name = f"{split}.jpg"
        file = tmp_path / annotations.format(split)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(coco_document([name], [OBJECT], {1: "cat"})))
        write_picture(tmp_path / images.format(split) / name)
    train, val = read_splits(DataConfig(format="coco", root=str(tmp_path)))
    assert Path(train.paths[0]) == tmp_path / images.format("train") / "train.jpg"
    assert Path(val.paths[0]) == tmp_path / images.format(val_name) / f"{val_name}.jpg"


def test_root_relative_to_working_directory(coco_set: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    root = coco_set()
    monkeypatch.chdir(root.parent)
    assert len(read(Path("set"))) == 2


def test_ambiguous_annotations_name_candidates_and_key(coco_set: Write) -> None:
    root = coco_set()
    shutil.copy(root / "annotations" / "instances_train2017.json", root / "annotations" / "instances_train2014.json")
    message = refused(root, "several annotation files for the train split")
    assert "annotations/instances_train2014.json, annotations/instances_train2017.json" in message
    assert "data.train=FILE picks one" in message
    assert len(read(root, train="annotations/instances_train2017.json")) == 2


def test_ambiguous_image_folders_name_candidates_and_key(coco_set: Write) -> None:
    root = coco_set()
    shutil.copytree(root / "train2017", root / "images" / "train")
    message = refused(root, "its images are in several folders")
    assert "images/train" in message
    assert "train2017" in message
    assert "data.train_images=FOLDER picks one" in message
    assert read(root, train_images="train2017").paths[0] == str(root / "train2017" / "a.jpg")


def test_nothing_found_lists_what_was_looked_for(tmp_path: Path) -> None:
    message = refused(tmp_path, "no annotation file for the train split")
    assert "annotations/train.json" in message
    assert "train/_annotations.coco.json" in message
    assert "data.train=FILE" in message
    (tmp_path / "data.yaml").touch()
    refused(tmp_path, "there is a data.yaml: data=yolo reads it")


def test_images_nowhere_lists_what_was_looked_for(coco_set: Write) -> None:
    root = coco_set()
    shutil.move(root / "train2017", root.parent / "elsewhere")
    message = refused(root, "none of its images was found, for example a.jpg; looked in .*annotations")
    assert "data.train_images=FOLDER picks the folder" in message
    assert len(read(root, train_images=str(root.parent / "elsewhere"))) == 2


def test_missing_root_keys_and_options(tmp_path: Path, coco_set: Write) -> None:
    with pytest.raises(ConfigError, match=r"data.root is not set; data=coco needs the folder"):
        read_split(DataConfig(format="coco"), "train")
    refused(
        tmp_path / "no" / "where", rf"data.root: .*where does not exist \(its nearest existing parent is {tmp_path}\)"
    )
    root = coco_set()
    refused(root, r"data.train=labels.json: not found; looked for .*set/labels.json and ", train="labels.json")
    refused(root, r"data.train=annotations: .* is a folder", train="annotations")
    refused(root, r"data.train_images=x: not found", train_images="x")
    with pytest.raises(ConfigError, match=r"data.options.speed: the reader 'coco' does not know this option"):
        read(root, options={"speed": 1})
    with pytest.raises(
        ConfigError, match=r"data.format=voc: no such reader; allowed: coco, dota, rolabelimg, shapes, yolo"
    ):
        read_split(DataConfig(format="voc", root=str(root)), "train")


# labels


def test_category_ids_with_gaps_are_mapped_by_ascending_id(coco_set: Write) -> None:
    objects = [{**OBJECT, "category_id": c, "image_id": 2} for c in (90, 3, 7, 1)]
    index = read(coco_set(objects, categories={90: "d", 3: "b", 1: "a", 7: "c"}))
    assert index.category_ids == (1, 3, 7, 90)
    assert index.class_names == ("a", "b", "c", "d")
    assert index.classes.tolist() == [3, 1, 2, 0]
    assert index.offsets.tolist() == [0, 0, 4]


def test_missing_iscrowd_is_no_crowd_and_crowds_are_kept(coco_set: Write) -> None:
    def drop(document: dict[str, Any]) -> None:
        del document["annotations"][0]["iscrowd"]

    crowd = {**OBJECT, "iscrowd": 1, "segmentation": {"counts": [10, 5], "size": [48, 64]}}
    index = read(coco_set([OBJECT, crowd], change=drop))
    assert index.crowd.tolist() == [False, True]
    assert "1 crowd region: no positives in training, ignored in evaluation" in index.notes


def test_images_without_labels_are_backgrounds(coco_set: Write) -> None:
    index = read(coco_set())
    assert index.offsets.tolist() == [0, 1, 1]
    assert "1 of 2 images have no objects (backgrounds)" in index.notes
    assert "1 of 2 classes have no object: dog" in index.notes


def test_no_label_at_all(coco_set: Write) -> None:
    refused(coco_set([]), "the train split has 2 images but no object to learn from")
    root = coco_set([{**OBJECT, "bbox": [4, 5, 0, 0]}])
    refused(root, r"no object to learn from \(1 object read.*1 box of zero size dropped: annotation 100 \(a.jpg\)")


def test_boxes_are_cleaned_and_noted(coco_set: Write) -> None:
    boxes = [[4, 5, 20, 10], [-3, 40, 20, 20], [70, 5, 4, 4], [3, 3, 0, 9], [0, 0, 64.3, 48]]
    index = read(coco_set([{**OBJECT, "bbox": box} for box in boxes]))
    assert index.boxes.tolist() == [[4, 5, 24, 15], [0, 40, 17, 48], [0, 0, 64, 48]]
    assert (
        "1 box of zero size dropped: annotation 103 (a.jpg); give each a width and a height, or remove it"
        in index.notes
    )
    assert (
        "1 box wholly outside the picture dropped: annotation 102 (a.jpg); move each into its picture, or remove it"
        in index.notes
    )
    assert "1 box partly outside the picture clipped: annotation 101 (a.jpg)" in index.notes


def test_a_byte_order_mark_is_passed_over(coco_set: Write) -> None:
    root = coco_set([OBJECT])
    file = root / "annotations" / "instances_train2017.json"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert len(read(root).boxes) == 1


def test_missing_area_is_the_box_area(coco_set: Write) -> None:
    index = read(coco_set([{"image_id": 1, "category_id": 1, "bbox": [4, 5, 20, 10]}, OBJECT]))
    assert index.areas.tolist() == [200, 150]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"category_id": 2}, r"annotation 100 \(a.jpg\): category_id is 2; allowed: 1, 3"),
        ({"category_id": None}, r"category_id is None; allowed: 1, 3"),
        ({"category_id": [1]}, r"category_id is \[1\]; allowed: 1, 3"),
        ({"image_id": 77}, r"annotation 100: image_id is 77; allowed: the 2 ids in 'images'"),
        ({"bbox": None}, r"annotation 100 \(a.jpg\): bbox is None; four numbers \[x, y, width, height\]"),
        ({"bbox": [1, 2, 3]}, r"bbox is \[1, 2, 3\]; four numbers"),
        ({"bbox": [1, 2, 3, 4, 0.5]}, r"bbox is \[1, 2, 3, 4, 0.5\]; four numbers"),
        ({"bbox": [1, 2, "3", 4]}, "four numbers"),
        ({"bbox": [1, 2, float("nan"), 4]}, r"bbox is \[1, 2, nan, 4\]; the numbers must be finite"),
        ({"bbox": [1, 2, float("inf"), 4]}, "the numbers must be finite"),
        ({"bbox": [1, 2, 1e7, 4]}, "the numbers must be finite, and none beyond 1048576"),
        ({"bbox": [1, 2, 10**400, 4]}, "four numbers"),
        ({"iscrowd": "0"}, r"annotation 100 \(a.jpg\): iscrowd is '0'; allowed: 0 and 1"),
        ({"iscrowd": []}, r"iscrowd is \[\]; allowed: 0 and 1"),
        ({"bbox": [9, 9, -3, 4]}, r"bbox is \[9, 9, -3, 4\]; width and height must not be negative"),
    ],
)
def test_wrong_annotation_is_named(coco_set: Write, wrong: dict[str, Any], text: str) -> None:
    message = refused(coco_set([{**OBJECT, **wrong}, OBJECT]), text)
    assert "instances_train2017.json" in message


def test_missing_bbox_key(coco_set: Write) -> None:
    refused(coco_set([{"image_id": 1, "category_id": 1}]), r"annotation 100 \(a.jpg\): has no 'bbox'")


def test_many_problems_are_reported_together(coco_set: Write) -> None:
    message = refused(coco_set([{**OBJECT, "category_id": 5}] * 13), "^13 problems in ")
    assert message.count("category_id is 5") == 10
    assert message.endswith("... and 3 more")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d["images"].append(d["images"][0]), r"images\[2\]: image id 1 is there twice \(a.jpg and a.jpg\)"),
        (
            lambda d: d["categories"].append({"id": 1, "name": "cow"}),
            r"categories\[2\]: id 1 is there twice \('cat' and",
        ),
        (lambda d: d["images"][0].update(id="one"), r"images\[0\]: id is 'one'; a whole number of 64 bits is needed"),
        (
            lambda d: d["images"][0].update(id=2**63),
            r"images\[0\]: id is 92233720.*; a whole number of 64",
        ),
        (lambda d: d["categories"][0].update(id=10**30), r"categories\[0\]: id is 10{30}; a whole number of 64 bits"),
        (lambda d: d["images"][0].pop("file_name"), r"images\[0\]: has no 'file_name' \(its keys: 'id', "),
        (
            lambda d: d.pop("categories"),
            r"no list 'categories'; COCO labels need 'images', 'annotations', 'categories'",
        ),
        (lambda d: d.update(images=[]), "the list 'images' is empty"),
        (lambda d: d.update(categories=[]), "the list 'categories' is empty"),
    ],
)
def test_wrong_lists_are_named(coco_set: Write, change: Callable[[dict[str, Any]], None], text: str) -> None:
    refused(coco_set(change=change), text)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (
            b'{"images": [],\n "annotations": [}',
            r"instances_train2017.json: not JSON: Expecting value in line 2, column 18",
        ),
        (b"", "not JSON: Expecting value in line 1"),
        (b"[1, 2]", "holds a JSON list; COCO labels are an object"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        (b"[" * 10**5, "not JSON that can be read"),
    ],
)
def test_damaged_json(coco_set: Write, text: bytes, pattern: str) -> None:
    root = coco_set()
    (root / "annotations" / "instances_train2017.json").write_bytes(text)
    refused(root, pattern)


# images


def test_missing_images_are_named(coco_set: Write) -> None:
    names = [f"{i}.jpg" for i in range(9)]
    root = coco_set(images=names)
    for name in names[1:8]:
        (root / "train2017" / name).unlink()
    message = refused(root, r"7 image files of 9 missing in .*train2017: 1.jpg, 2.jpg, 3.jpg, 4.jpg, 5.jpg and 2 more")
    assert "data.train_images=FOLDER" in message


@pytest.mark.parametrize(
    ("declared", "rule", "text"),
    [
        ((48, 64), ExifOrientation.APPLY, None),
        ((64, 48), ExifOrientation.IGNORE, None),
        ((64, 48), ExifOrientation.APPLY, "they agree with the stored size: data.exif_orientation=ignore"),
        ((48, 64), ExifOrientation.IGNORE, "they agree with the displayed size: data.exif_orientation=apply"),
        ((30, 20), ExifOrientation.APPLY, "they agree with neither"),
    ],
)
def test_exif_rule_and_declared_size(
    coco_set: Write, declared: tuple[int, int], rule: ExifOrientation, text: str | None
) -> None:
    def declare(document: dict[str, Any]) -> None:
        document["images"][0].update(width=declared[0], height=declared[1])

    root = coco_set(change=declare)
    write_picture(root / "train2017" / "a.jpg", orientation=6)  # stored 64x48, displayed 48x64
    if text is None:
        assert tuple(read(root, exif_orientation=rule).sizes[0]) == declared
        return
    message = refused(root, text, exif_orientation=rule)
    assert f"a.jpg: the labels say {declared[0]}x{declared[1]}" in message
    assert "stored as 64x48 and displayed as 48x64 (EXIF orientation 6)" in message


def test_declared_size_that_is_wrong(coco_set: Write) -> None:
    root = coco_set()
    write_picture(root / "train2017" / "b.jpg", width=32, height=24)
    refused(root, "b.jpg: the labels say 64x48, the file has 32x24 pixels")


def test_undeclared_size_comes_from_the_file(coco_set: Write) -> None:
    index = read(coco_set(change=lambda d: d["images"][1].pop("width")))
    assert index.sizes.tolist() == [[64, 48], [64, 48]]
    assert "1 image without a usable width and height in the JSON: read from the files" in index.notes


@pytest.mark.parametrize("width", [-64, 0, 10**12, 64.5, "64"])
def test_size_that_cannot_be_one_comes_from_the_file(coco_set: Write, width: Any) -> None:
    index = read(coco_set(change=lambda d: d["images"][1].update(width=width)))
    assert index.sizes.tolist() == [[64, 48], [64, 48]]
    assert "1 image without a usable width and height in the JSON: read from the files" in index.notes


def test_file_listed_twice_is_noted(coco_set: Write) -> None:
    index = read(coco_set(change=lambda d: d["images"].append({**d["images"][1], "id": 9})))
    assert "1 image file listed under several image ids: b.jpg" in index.notes


def test_unreadable_image_stops_or_becomes_empty(coco_set: Write) -> None:
    root = coco_set([OBJECT, {**OBJECT, "image_id": 2}])
    (root / "train2017" / "b.jpg").write_bytes(b"")
    message = refused(root, r"image .*b.jpg: the file is empty \(0 bytes\)")
    assert ". data.bad_images=skip" in message
    index = read(root, bad_images=BadImages.SKIP)
    assert index.offsets.tolist() == [0, 1, 1]
    assert "1 image cannot be read and count as empty pictures: b.jpg" in index.notes


def test_windows_separators_and_sub_folders(coco_set: Write) -> None:
    root = coco_set(images=["x/a.jpg", "y/b.jpg"], change=lambda d: d["images"][0].update(file_name="x\\a.jpg"))
    assert read(root).paths[0] == str(root / "train2017" / "x" / "a.jpg")


# two splits


def test_splits_with_different_classes(coco_set: Write) -> None:
    root = coco_set()
    file = root / "annotations" / "instances_val2017.json"
    document = json.loads(file.read_text())
    document["categories"][1]["name"] = "wolf"
    file.write_text(json.dumps(document))
    with pytest.raises(DataError, match=r"different classes: only in .*train2017.json: 3 'dog'; only in .*: 3 'wolf'"):
        read_splits(DataConfig(format="coco", root=str(root)))


def test_images_in_both_splits_are_noted(coco_set: Write) -> None:
    root = coco_set()
    config = DataConfig(format="coco", root=str(root), val_images="train2017", train_images="train2017")
    _, val = read_splits(config)
    assert "2 images also in the training split, so the score says too much: a.jpg, b.jpg" in val.notes


def test_nothing_is_written(coco_set: Write) -> None:
    root = coco_set()
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    read_splits(DataConfig(format="coco", root=str(root)))
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
