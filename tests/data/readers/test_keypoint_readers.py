"""Key points as both formats have them: real persons against pycocotools, and files that are wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pycocotools.coco import COCO

from lucid_yolo.config.errors import DataError
from lucid_yolo.config.schema import DataConfig
from lucid_yolo.config.tasks import KeypointsConfig
from lucid_yolo.data.check import check_data
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import LabelKind
from lucid_yolo.data.labels.keypoint_spec import COCO_NAMES, COCO_SIGMAS, COCO_SKELETON
from lucid_yolo.data.readers import read_split, read_splits
from tests.data.disk import write_picture

Write = Callable[..., Path]
OBJECT = {"image_id": 1, "category_id": 1, "bbox": [4, 5, 20, 10], "area": 150}
POINTS = [5, 6, 2, 20, 12, 1, 0, 0, 0]
NAMES = ["nose", "left_ear", "right_ear"]
YAML = "train: images/train\nval: images/val\nnames: [cat, dog]\n"


def read(root: Path, split: Any = "train", format: str = "coco", **keys: Any) -> SplitIndex:
    return read_split(DataConfig(format=format, root=str(root), **keys), split, LabelKind.KEYPOINTS)


def refused(root: Path, pattern: str, **keys: Any) -> str:
    with pytest.raises(DataError, match=pattern) as caught:
        read(root, **keys)
    return str(caught.value)


def values(index: SplitIndex) -> np.ndarray:
    return index.labels.values  # type: ignore[union-attr]


def with_points(
    names: list[str] | None = None, skeleton: Any = None, *, both: bool = True
) -> Callable[[dict[str, Any]], None]:
    """Give categories key points."""

    def change(document: dict[str, Any]) -> None:
        for category in document["categories"][: 2 if both else 1]:
            category["keypoints"] = NAMES if names is None else names
            category["skeleton"] = [[1, 2], [1, 3]] if skeleton is None else skeleton

    return change


# COCO


@pytest.mark.parametrize("split", ["train", "val"])
def test_persons_of_coco_equal_pycocotools(test_data: Path, split: str) -> None:
    index = read(test_data / "coco_open", split)  # the file of persons goes before that of all instances
    file = test_data / "coco_open" / "annotations" / f"person_keypoints_{split}2017.json"
    truth = COCO(str(file))
    assert index.source == str(file)
    assert index.image_ids.tolist() == list(truth.imgs)
    for i, image_id in enumerate(index.image_ids.tolist()):
        expected = truth.loadAnns(truth.getAnnIds(image_id))
        found = values(index)[index.rows(i)]
        assert found.reshape(len(expected), 51).tolist() == [annotation["keypoints"] for annotation in expected]
        assert (found[..., 2] > 0).sum(1).tolist() == [annotation["num_keypoints"] for annotation in expected]
    with_any = (values(index)[..., 2] > 0).any(1)
    assert int(with_any.sum()) == {"train": 41, "val": 26}[split]
    assert set(np.unique(values(index)[..., 2])) == {0, 1, 2}
    assert index.keypoints is not None
    category = truth.loadCats(1)[0]
    assert list(index.keypoints.names) == category["keypoints"]
    assert [[a + 1, b + 1] for a, b in index.keypoints.skeleton] == category["skeleton"]
    assert (index.keypoints.skeleton, index.keypoints.sigmas) == (COCO_SKELETON, COCO_SIGMAS)


def test_the_file_can_be_named(test_data: Path) -> None:
    keys = {split: f"annotations/person_keypoints_{split}2017.json" for split in ("train", "val")}
    config = DataConfig(format="coco", root=str(test_data / "coco_open"), **keys)
    train, val = read_splits(config, LabelKind.KEYPOINTS)
    assert (len(train), len(val)) == (15, 22)
    assert len(read_split(config, "train").boxes) == 90  # task=detect reads the boxes of the same file
    message = refused(test_data / "coco_open", "none has 'keypoints'", train="annotations/instances_train2017.json")
    assert "data.train=annotations/person_keypoints_train2017.json" in message


def test_objects_without_points_keep_their_boxes(coco_set: Write) -> None:
    annotations = [
        {**OBJECT, "keypoints": POINTS},
        {**OBJECT, "keypoints": [0] * 9},
        OBJECT,
        {**OBJECT, "keypoints": None},
        {**OBJECT, "keypoints": []},
        {**OBJECT, "category_id": 3},
    ]
    index = read(coco_set(annotations, change=with_points(both=False)))
    assert len(index.boxes) == 6
    assert values(index)[0].tolist() == [[5, 6, 2], [20, 12, 1], [0, 0, 0]]
    assert not values(index)[1:].any()
    assert index.keypoints is not None
    assert (index.keypoints.names, index.keypoints.flip) == (tuple(NAMES), (0, 2, 1))
    assert index.keypoints.skeleton == ((0, 1), (0, 2))
    assert index.keypoints.sigmas is None
    assert index.labels.flip == (0, 2, 1)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("points", "problem"),
    [
        ([1, 1, 2] * 2, r"annotation 100 \(a.jpg\): keypoints has 6 numbers; the categories name 3 points, so 9"),
        ([1, 1, 2] * 4, r"keypoints has 12 numbers; .* 9 are needed"),
        ([0] * 6, "keypoints has 6 numbers; .* 9 are needed"),
        ([1, 1] * 4, "keypoints has 8 numbers; a point has three"),
        ([1, 1, 3] + [0] * 6, "visibility of point 0 is 3; allowed: 0, 1 and 2"),
        ([0] * 6 + [1, 1, 0.5], "visibility of point 2 is 0.5"),
        ([float("nan"), 1, 1] + [0] * 6, "point 0 is at nan, 1; the numbers must be finite"),
        ([1e300, 1, 1] + [0] * 6, r"point 0 is at 1e\+300, 1; the numbers must be finite, and none beyond 1048576"),
        ([10**400, 1, 1] + [0] * 6, "keypoints are no list of numbers"),
        (["1", 1, 1] + [0] * 6, "keypoints are no list of numbers"),
        ({"x": 1}, "keypoints are no list of numbers"),
        ([True, 1, 1] + [0] * 6, "keypoints are no list of numbers"),
    ],
)
def test_points_that_cannot_be_used(coco_set: Write, points: Any, problem: str) -> None:
    refused(coco_set([{**OBJECT, "keypoints": points}], change=with_points()), problem)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda d: None, "categories: none has 'keypoints', the list of names that task=keypoints needs"),
        (with_points(skeleton=[[0, 1]]), r"'cat': skeleton is \[\[0, 1\]\]; positions of 3 points count from 1"),
        (with_points(skeleton=[[1, 4]]), "count from 1"),
        (with_points(skeleton=[[1, 2, 3]]), "pairs of positions"),
        (with_points(skeleton="1-2"), "pairs of positions"),
        (with_points(names=["a", 1, "b"]), r"'cat': keypoints is \['a', 1, 'b'\]; a list of names"),
    ],
)
def test_categories_that_cannot_be_used(coco_set: Write, change: Any, problem: str) -> None:
    refused(coco_set([{**OBJECT, "keypoints": POINTS}], change=change), problem)


@pytest.mark.parametrize(("key", "what"), [("keypoints", "names"), ("skeleton", "skeletons")])
def test_categories_must_agree(coco_set: Write, key: str, what: str) -> None:
    def change(document: dict[str, Any]) -> None:
        with_points()(document)
        document["categories"][1][key] = document["categories"][1][key][::-1]

    refused(coco_set([OBJECT], change=change), f"'cat' and 'dog' have different {what} of key points")


def test_no_labelled_point_at_all(coco_set: Write) -> None:
    refused(coco_set([OBJECT, {**OBJECT, "keypoints": [0] * 9}], change=with_points()), "of 2.*task=detect")


def test_splits_must_have_the_same_points(coco_set: Write) -> None:
    root = coco_set([{**OBJECT, "keypoints": POINTS}], change=with_points())
    config = DataConfig(format="coco", root=str(root))
    read_splits(config, LabelKind.KEYPOINTS)
    file = root / "annotations" / "instances_val2017.json"
    document = json.loads(file.read_text())
    for category in document["categories"]:
        category["keypoints"] = ["nose", "right_ear", "left_ear"]
    file.write_text(json.dumps(document))
    with pytest.raises(DataError, match=r"different key points: nose, left_ear, right_ear in .*train2017"):
        read_splits(config, LabelKind.KEYPOINTS)
    assert any("different key points" in problem for problem in check_data(config, LabelKind.KEYPOINTS).problems)


def test_check_says_what_a_run_would_say_of_settings(yolo_set: Write) -> None:
    text = "0 0.5 0.5 0.25 0.5" + " 0.5 0.5 2" * 3 + "\n"
    config = DataConfig(format="yolo", root=str(yolo_set(text, yaml=f"{YAML}kpt_shape: [3, 3]\n")))
    (problem,) = check_data(config, LabelKind.KEYPOINTS, KeypointsConfig()).problems
    assert problem.startswith("data.augment.flip_lr=0.5 mirrors pictures, and the data does not say which key points")
    assert check_data(config, LabelKind.KEYPOINTS, KeypointsConfig(flip=[0, 2, 1])).ok


def test_formats_without_key_points_say_so(tmp_path: Path) -> None:
    for folder in ("images", "labelTxt"):
        (tmp_path / "train" / folder).mkdir(parents=True)
    write_picture(tmp_path / "train" / "images" / "a.png")
    (tmp_path / "train" / "labelTxt" / "a.txt").write_text("1 1 9 1 9 9 1 9 ship 0\n")
    refused(tmp_path, "data.format=dota has no key points", format="dota", options={"classes": ["ship"]})


def test_drawn_shapes_look_the_same_in_a_mirror() -> None:
    index = read_split(
        DataConfig(format="shapes", options={"num_train": 3, "num_val": 2}), "train", LabelKind.KEYPOINTS
    )
    assert index.keypoints is not None
    assert (index.keypoints.names, index.keypoints.flip) == (("center", "head", "tail"), (0, 1, 2))
    inside = (values(index)[..., :2] >= index.boxes[:, None, :2]) & (values(index)[..., :2] <= index.boxes[:, None, 2:])
    assert inside.all()


# YOLO


def yolo(root: Path, **keys: Any) -> SplitIndex:
    return read(root, format="yolo", **keys)


def test_lines_with_three_numbers_a_point(yolo_set: Write) -> None:
    text = "0 0.5 0.5 0.25 0.5 0.25 0.5 2 0.5 0.75 1 7 -3 0\n1 0.5 0.5 0.5 0.5" + " 0 0 0" * 3 + "\n"
    index = yolo(yolo_set(text, yaml=f"{YAML}kpt_shape: [3, 3]\nflip_idx: [0, 2, 1]\n"))
    assert values(index).tolist() == [[[16, 24, 2], [32, 36, 1], [0, 0, 0]], [[0, 0, 0]] * 3]  # 64 x 48
    assert index.boxes[0].tolist() == [24, 12, 40, 36]
    assert index.keypoints is not None
    assert (index.keypoints.names, index.keypoints.flip) == (("0", "1", "2"), (0, 2, 1))
    assert (index.keypoints.skeleton, index.keypoints.sigmas) == ((), None)


def test_lines_with_two_numbers_a_point(yolo_set: Write) -> None:
    index = yolo(yolo_set("0 0.5 0.5 0.25 0.5 0.25 0 0 0 0 0.5\n", yaml=f"{YAML}kpt_shape: [3, 2]\n"))
    assert values(index).tolist() == [[[16, 0, 2], [0, 0, 0], [0, 24, 2]]]
    assert index.keypoints is not None
    assert index.keypoints.flip is None  # not stated: mirroring will be refused
    empty = yolo(yolo_set("0 0.5 0.5 0.25 0.5 0.25 0 0 0 0 0.5\n", yaml=f"{YAML}kpt_shape: [3, 2]\nflip_idx: []\n"))
    assert empty.keypoints == index.keypoints


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("0 0.5 0.5 0.25 0.5", r"line 1: 5 fields; allowed: 14 \(class .* 3 points of 3 numbers, as kpt_shape says\)"),
        ("0 0.5 0.5 0.25 0.5" + " 0.5 0.5" * 3, "11 fields; allowed: 14"),
        ("0 0.5 0.5 0.25 0.5 0.5 0.5 3" + " 0 0 0" * 2, "visibility of point 0 is 3"),
        ("0 0.5 0.5 0.25 0.5 1.5 0.5 1" + " 0 0 0" * 2, "coordinate 1.5; allowed: 0 to 1"),
        ("0 0.5 0.5 0.25 0.5 0.5 30 1" + " 0 0 0" * 2, "coordinate 30; .*looks like pixels"),
        ("0 0.5 0.5 0.25 0.5 nan 0.5 1" + " 0 0 0" * 2, "point 0 is at nan"),
        ("0 0.5 1.5 0.25 0.5" + " 0 0 0" * 3, "coordinate 1.5"),
    ],
)
def test_lines_that_cannot_be_used(yolo_set: Write, line: str, problem: str) -> None:
    root = yolo_set(f"{line}\n", yaml=f"{YAML}kpt_shape: [3, 3]\n")
    refused(root, problem, format="yolo")


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("", r"task=keypoints needs kpt_shape: .* has none"),
        ("kpt_shape: 3\n", "has none"),
        ("kpt_shape: [3, 4]\n", r"says \[3, 4\]"),
        ("kpt_shape: [0, 3]\n", r"says \[0, 3\]"),
        ("kpt_shape: [3, 3]\nflip_idx: [[1, 2]]\n", "flip_idx is unusable: it has 1 positions for 3 points"),
        ("kpt_shape: [2, 3]\nflip_idx: [[0, 1], [1, 0]]\n", "flip_idx is unusable: point 0 goes to -1"),
        ("kpt_shape: [3, 3]\nflip_idx: [1, 0]\n", "it has 2 positions for 3 points"),
        ("kpt_shape: [3, 3]\nflip_idx: [1, 2, 0]\n", "point 0 goes to 1, but 1 to 2"),
        ("kpt_shape: [3, 3]\nflip_idx: [1, 2, 3]\n", "unusable"),
        ("kpt_shape: [3, 3]\nflip_idx: 5\n", "it has 1 positions for 3 points"),
    ],
)
def test_a_data_yaml_that_cannot_be_used(yolo_set: Write, keys: str, problem: str) -> None:
    root = yolo_set("0 0.5 0.5 0.25 0.5" + " 0.5 0.5 2" * 3, yaml=f"{YAML}{keys}")
    assert str(root / "data.yaml") in refused(root, problem, format="yolo")
    if "[3, 3]" in keys:  # task=detect asks for no more than to know which numbers to pass over
        assert len(read_split(DataConfig(format="yolo", root=str(root)), "train").boxes) == 1


def test_same_points_as_the_coco_labels(test_data: Path, tmp_path: Path) -> None:
    coco = read(test_data / "coco_open")
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    for i, path in enumerate(coco.paths):
        shutil.copy(path, tmp_path / "images")
        width, height = coco.sizes[i].tolist()
        lines = []
        for box, points in zip(coco.boxes[coco.rows(i)], values(coco)[coco.rows(i)], strict=True):
            x1, y1, x2, y2 = box.tolist()
            numbers = [(x1 + x2) / 2 / width, (y1 + y2) / 2 / height, (x2 - x1) / width, (y2 - y1) / height]
            numbers += (points / [width, height, 1]).ravel().tolist()
            lines.append(" ".join(["0", *(f"{number:.8f}" for number in numbers)]))
        (tmp_path / "labels" / f"{Path(path).stem}.txt").write_text("\n".join(lines))
    flip = [0, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14, 13, 16, 15]
    text = f"train: images\nval: images\nnames: [person]\nkpt_shape: [17, 3]\nflip_idx: {flip}\n"
    (tmp_path / "data.yaml").write_text(text)
    index = yolo(tmp_path)
    names = [Path(path).name for path in index.paths]
    for i, path in enumerate(coco.paths):
        rows = index.rows(names.index(Path(path).name))
        np.testing.assert_allclose(values(index)[rows], values(coco)[coco.rows(i)], atol=1e-3)
    assert index.keypoints is not None
    assert index.keypoints == coco.keypoints  # 17 points that change places as COCO's do are COCO's
    assert index.keypoints.names == COCO_NAMES
