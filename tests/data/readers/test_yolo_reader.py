from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lucid_yolo.config.errors import ConfigError, DataError
from lucid_yolo.config.schema import BadImages, DataConfig, ExifOrientation
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.readers import read_split, read_splits
from lucid_yolo.data.readers.yolo_files import label_path
from tests.data.disk import write_picture

Write = Callable[..., Path]


def read(root: Path, split: Any = "train", **keys: Any) -> SplitIndex:
    return read_split(DataConfig(format="yolo", root=str(root), **keys), split)


def refused(root: Path, pattern: str, **keys: Any) -> str:
    with pytest.raises(DataError, match=pattern) as caught:
        read(root, **keys)
    return str(caught.value)


def test_fractions_become_pixels(yolo_set: Write) -> None:
    index = read(yolo_set("0 0.5 0.5 0.25 0.5\n1 0.25 0.75 0.5 0.25\n"))
    # 64x48: centre (32, 24), size 16x24; centre (16, 36), size 32x12
    assert index.boxes.tolist() == [[24, 12, 40, 36], [0, 30, 32, 42]]
    assert index.classes.tolist() == [0, 1]
    assert index.areas.tolist() == [384, 384]
    assert (index.class_names, index.category_ids) == (("cat", "dog"), (0, 1))
    assert index.sizes.tolist() == [[64, 48], [64, 48]]
    assert index.image_ids.tolist() == [0, 1]
    assert index.offsets.tolist() == [0, 2, 2]
    assert "1 of 2 images have no objects (backgrounds)" in index.notes


def test_same_objects_as_the_coco_labels(test_data: Path, tmp_path: Path) -> None:
    coco = read_split(DataConfig(format="coco", root=str(test_data / "bccd")), "val")
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    for i, path in enumerate(coco.paths):
        shutil.copy(path, tmp_path / "images")
        width, height = coco.sizes[i].tolist()
        lines = []
        for box, label in zip(coco.boxes[coco.rows(i)], coco.classes[coco.rows(i)], strict=True):
            x1, y1, x2, y2 = box.tolist()
            fractions = ((x1 + x2) / 2 / width, (y1 + y2) / 2 / height, (x2 - x1) / width, (y2 - y1) / height)
            lines.append(" ".join([str(label), *(f"{value:.8f}" for value in fractions)]))
        (tmp_path / "labels" / f"{Path(path).stem}.txt").write_text("\n".join(lines))
    (tmp_path / "data.yaml").write_text("train: images\nval: images\nnames: {0: RBC, 1: WBC, 2: Platelets}\n")
    yolo = read(tmp_path)
    assert [Path(p).name for p in yolo.paths] == sorted(Path(p).name for p in coco.paths)
    repeated = 1137 - len(yolo.boxes)
    assert any(note.startswith(f"{repeated} repeated line") for note in yolo.notes) == (repeated > 0)
    for i, path in enumerate(coco.paths):
        j = [Path(p).name for p in yolo.paths].index(Path(path).name)
        expected = np.unique(coco.boxes[coco.rows(i)], axis=0)
        np.testing.assert_allclose(np.unique(yolo.boxes[yolo.rows(j)].round(3), axis=0), expected, atol=1e-3)


# data.yaml and layouts


@pytest.mark.parametrize(
    "names", ["names: [cat, dog]", "names: {0: cat, 1: dog}", "names:\n  1: dog\n  0: cat", "nc: 2\nnames: [cat, dog]"]
)
def test_names_as_list_or_mapping(yolo_set: Write, names: str) -> None:
    index = read(yolo_set(yaml=f"train: images/train\nval: images/val\n{names}\n"))
    assert index.class_names == ("cat", "dog")


@pytest.mark.parametrize(
    ("yaml", "text"),
    [
        ("train: images/train\nnc: 3\nnames: [a, b]", "nc is 3, but names has 2 entries"),
        ("train: images/train\nnames: {1: a, 2: b}", "names: its keys are 1, 2; the whole numbers 0 to 1 are needed"),
        ("train: images/train\nnames: {'0': a, '1': b}", "names: its keys are '0', '1'; the whole numbers 0 to 1"),
        ("train: images/train\nnames: [no, b]", "names: class 0 is False, which is no text; in quotes"),
        ("train: images/train\nnames: {0: a, 1: null}", "names: class 1 is None, which is no text"),
        ("train: images/train\nnames: [a, b: c]", "names: class 1 is {'b': 'c'}, which is no text"),
        ("train: images/train", "names is None; a list of class names, or a mapping"),
        ("train: 3\nnames: [a]", "train is 3; a folder, a .txt list, or a list of those is needed"),
        ("names: [a\ntrain: b", r"data.yaml: not YAML: .* in line \d"),
        ("just text", "data.yaml: keys and values are needed"),
        (
            "names: [a]\nval: images/val",
            "no key 'train', so the train split is unknown; .*data.train=PLACE names it; its splits: val",
        ),
        ("names: [a]\ntrain: pictures", r"data.yaml: train: pictures: not found; looked for .*/set/pictures"),
    ],
)
def test_wrong_data_yaml(yolo_set: Write, yaml: str, text: str) -> None:
    refused(yolo_set(yaml=yaml), text)


def test_both_problems_of_a_data_yaml_at_once(yolo_set: Write) -> None:
    message = refused(yolo_set(yaml="train: 3\nnc: 3\nnames: [a, b]"), "^2 problems in .*data.yaml")
    assert "nc is 3" in message
    assert "train is 3" in message


@pytest.mark.parametrize(
    ("yaml", "noted"),
    [
        ("path: .\ntrain: images/train\nval: images/val\n", False),
        ("train: ./images/train\nval: ./images/val\n", False),
        ("path: images\ntrain: train\nval: val\n", False),
        ("train: ../images/train\nval: ../images/val\n", False),  # one ../ too many, as some exports write it
        ("path: /another/machine\ntrain: images/train\nval: images/val\n", True),
        ("train: [images/train]\nval: [images/val]\n", False),
        ("train: images/train\nvalid: images/val\n", False),
    ],
)
def test_paths_of_splits(yolo_set: Write, yaml: str, noted: bool) -> None:
    root = yolo_set(yaml=yaml + "names: [cat, dog]\n")
    for split in ("train", "val"):
        index = read(root, split)
        assert index.paths == tuple(str(root / "images" / split / f"{name}.jpg") for name in "ab")
        assert any("path /another/machine does not exist" in note for note in index.notes) == noted


def test_text_lists_and_several_entries(yolo_set: Write) -> None:
    root = yolo_set(yaml="train: [images/train, extra.txt]\nval: list/val.txt\nnames: [cat, dog]\n")
    (root / "extra.txt").write_text("./images/val/b.jpg\n\n")
    (root / "list").mkdir()
    (root / "list" / "val.txt").write_text(f"{root}/images/val/a.jpg\nimages/val/b.jpg\n")
    train, val = read_splits(DataConfig(format="yolo", root=str(root)))
    assert [Path(p).relative_to(root).as_posix() for p in train.paths] == [
        "images/train/a.jpg",
        "images/train/b.jpg",
        "images/val/b.jpg",
    ]
    assert len(val) == 2
    assert "1 image also in the training split, so the score says too much: b.jpg" in val.notes
    (root / "extra.txt").write_text("images/val/b.jpg\nimages/val/c.jpg\n")
    refused(root, r"extra.txt: line 2: image images/val/c.jpg not found; looked for .*/set/images/val/c.jpg")


def test_root_may_be_the_file_and_keys_override(yolo_set: Write) -> None:
    root = yolo_set()
    assert len(read(root / "data.yaml")) == 2
    (root / "data.yaml").rename(root / "mine.yml")
    assert len(read(root)) == 2
    index = read(root, train=str(root / "images" / "val"))
    assert index.paths[0] == str(root / "images" / "val" / "a.jpg")
    refused(root, "data.train=nowhere: not found; looked for", train="nowhere")
    (root / "other.yaml").write_text("names: [a]")
    refused(root, r"several YAML files and none is data.yaml: mine.yml, other.yaml; data.root=FILE", train="x")
    with pytest.raises(ConfigError, match=r"data.train_images: data=yolo has no use for this key"):
        read(root, train_images="x")


def test_a_test_split_is_read_where_it_is_named(yolo_set: Write) -> None:
    root = yolo_set()
    advice = "write it there, or val=PLACE of lucid-yolo validate names it; its splits: train, val"
    refused(root, f"no key 'test', so the test split is unknown; {advice}", split="test")
    text = (root / "data.yaml").read_text()
    value = next(line.partition(":")[2] for line in text.splitlines() if line.startswith("val:"))
    (root / "data.yaml").write_text(f"{text}test:{value}\n")
    assert read(root, "test").paths == read(root, "val").paths
    assert read(root, "test").name == "test"
    assert read(root, "test", test="images/train").paths == read(root, "train").paths


def test_no_data_yaml(tmp_path: Path) -> None:
    refused(tmp_path, "no data.yaml")
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "train.json").touch()
    refused(tmp_path, "there are COCO annotations: data=coco reads them")


@pytest.mark.parametrize(
    ("image", "label"),
    [
        ("/d/images/train/a.jpg", "/d/labels/train/a.txt"),
        ("/d/train/images/a.b.png", "/d/train/labels/a.b.txt"),
        ("/images/d/images/a.jpg", "/images/d/labels/a.txt"),
        ("/d/my_images/a.jpg", "/d/my_images/a.txt"),
        ("/d/a.jpg", "/d/a.txt"),
    ],
)
def test_label_path(image: str, label: str) -> None:
    assert label_path(image) == label


def test_labels_beside_images(tmp_path: Path) -> None:
    for split in ("train", "val"):
        write_picture(tmp_path / split / "a.jpg")
        (tmp_path / split / "a.txt").write_text("0 .5 .5 .5 .5")
    (tmp_path / "data.yaml").write_text("train: train\nval: val\nnames: [cat]")
    assert read(tmp_path).boxes.tolist() == [[16, 12, 48, 36]]


# label files


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("2 .5 .5 .1 .1", r"labels/train/a.txt line 1: class 2; allowed: 0 to 1"),
        ("-1 .5 .5 .1 .1", "line 1: class -1; allowed: 0 to 1"),
        ("0.5 .5 .5 .1 .1", "line 1: class '0.5' is not a whole number; allowed: 0 to 1"),
        ("cat .5 .5 .1 .1", "line 1: class 'cat' is not a whole number; allowed: 0 to 1"),
        ("nan .5 .5 .1 .1", "class 'nan' is not a whole number"),
        ("0 .5 .5 .1", "line 1: 4 fields; allowed: 5 "),
        ("0 .5 .5 .1 .1 .9", "line 1: 6 fields; allowed: 5 "),
        ("0 .5 .5 .1 x", r"line 1: '.5 .5 .1 x' are not all numbers"),
        ("0 .5 1.2 .1 .1", "line 1: coordinate 1.2; allowed: 0 to 1, fractions of the picture$"),
        ("0 -.2 .5 .1 .1", "coordinate -0.2; allowed: 0 to 1"),
        ("0 .5 .5 nan .1", "coordinate nan; allowed: 0 to 1"),
        ("0 315 240 20 30", "coordinate 315; allowed: 0 to 1, .*it looks like pixels: divide x by the width"),
    ],
)
def test_wrong_line_is_named(yolo_set: Write, line: str, text: str) -> None:
    refused(yolo_set(f"{line}\n"), text)


def test_one_based_labels_are_recognised(yolo_set: Write) -> None:
    message = refused(yolo_set("1 .5 .5 .1 .1\n", "2 .5 .5 .1 .1\n"), "class 2; allowed: 0 to 1")
    assert "The labels look 1-based: they use 1 to 2, and classes count from 0." in message
    message = refused(yolo_set("0 .5 .5 .1 .1\n", "2 .5 .5 .1 .1\n"), "class 2; allowed: 0 to 1")
    assert "1-based" not in message


def test_many_problems_are_reported_together(yolo_set: Write) -> None:
    message = refused(
        yolo_set("\n".join(f"7 .5 .5 .1 .{i}" for i in range(1, 9)), "0 .5\n9 9 9 9 9 9 9\n"), "^11 problems in"
    )
    assert message.count("class 7; allowed: 0 to 1") == 8
    assert "... and 1 more" in message


def test_whole_number_written_with_decimals_is_a_class(yolo_set: Write) -> None:
    assert read(yolo_set("1.000 .5 .5 .1 .1\n")).classes.tolist() == [1]


def test_polygons_give_their_envelope(yolo_set: Write) -> None:
    index = read(yolo_set("0 .25 .5 .5 .25 .75 .5 .5 1.0\n1 .5 .5 .5 .5\n"))
    assert index.boxes.tolist() == [[16, 12, 48, 48], [16, 12, 48, 36]]
    assert "1 polygon line read as the box around the polygon" in index.notes


def test_key_point_lines_give_their_box(yolo_set: Write) -> None:
    yaml = "train: images/train\nval: images/val\nnames: [cat, dog]\nkpt_shape: [2, 3]\n"
    index = read(yolo_set("0 .5 .5 .5 .5 .1 .1 2 .2 .2 1\n", yaml=yaml))
    assert index.boxes.tolist() == [[16, 12, 48, 36]]


def test_repeated_lines_are_dropped(yolo_set: Write) -> None:
    index = read(yolo_set("0 .5 .5 .1 .1\n1 .5 .5 .1 .1\n0 .5  .5 .1 .1\n"))
    assert index.classes.tolist() == [0, 1]
    assert any(note.startswith("1 repeated line dropped: ") and note.endswith("a.txt line 3") for note in index.notes)


def test_zero_size_and_overhanging_boxes(yolo_set: Write) -> None:
    index = read(yolo_set("0 .5 .5 0 .1\n1 .0 .5 .5 .5\n"))
    assert index.boxes.tolist() == [[0, 12, 16, 36]]
    assert any(n.startswith("1 box of zero size dropped: ") and "a.txt line 1; give each" in n for n in index.notes)
    assert any(n.startswith("1 box partly outside the picture clipped: ") for n in index.notes)


def test_missing_label_files_are_backgrounds_but_not_all(yolo_set: Write) -> None:
    root = yolo_set(b=None)
    index = read(root)
    assert index.offsets.tolist() == [0, 1, 1]
    assert f"1 image without a label file count as backgrounds: {root}/images/train/b.jpg" in index.notes
    shutil.rmtree(root / "labels" / "train")
    refused(root, r"none of the 2 images has a label file; looked for .*labels/train/a.txt and so on")
    refused(yolo_set("", ""), "the train split has 2 images but no object to learn from")


def test_label_files_without_an_image_are_noted(yolo_set: Write) -> None:
    root = yolo_set()
    for name in ("lost", "classes"):
        (root / "labels" / "train" / f"{name}.txt").write_text("0 .5 .5 .1 .1")
    assert f"1 label file without an image: {root}/labels/train/lost.txt" in read(root).notes


def test_byte_order_mark_and_windows_lines(yolo_set: Write) -> None:
    root = yolo_set()
    (root / "labels" / "train" / "a.txt").write_bytes(b"\xef\xbb\xbf0 .5 .5 .5 .5\r\n1 .5 .5 .5 .5\r\n")
    assert read(root).classes.tolist() == [0, 1]


# images


@pytest.mark.parametrize(
    ("rule", "size", "box"),
    [
        (ExifOrientation.APPLY, [48, 64], [18, 16, 30, 48]),
        (ExifOrientation.IGNORE, [64, 48], [24, 12, 40, 36]),
    ],
)
def test_exif_rule(yolo_set: Write, rule: ExifOrientation, size: list[int], box: list[float]) -> None:
    root = yolo_set()
    write_picture(root / "images" / "train" / "a.jpg", orientation=8)
    index = read(root, exif_orientation=rule)
    assert index.sizes[0].tolist() == size
    assert index.boxes.tolist() == [box]


def test_unreadable_image_stops_or_becomes_empty(yolo_set: Write) -> None:
    root = yolo_set(b="1 .5 .5 .5 .5")
    (root / "images" / "train" / "a.jpg").write_bytes(b"")
    message = refused(root, r"image .*a.jpg: the file is empty \(0 bytes\)")
    assert ". data.bad_images=skip" in message
    index = read(root, bad_images=BadImages.SKIP, image_size=320)
    assert index.offsets.tolist() == [0, 0, 1]
    assert index.sizes.tolist() == [[320, 320], [64, 48]]
    assert any(note.startswith("1 image cannot be read and count as empty pictures: ") for note in index.notes)


def test_no_images(yolo_set: Write) -> None:
    root = yolo_set()
    for path in (root / "images" / "train").iterdir():
        path.rename(path.with_suffix(".txt"))
    refused(root, r"no images for the train split; looked for the suffixes .bmp, .jpeg, .jpg, .png")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet="01. -en\n9x\t", max_size=40))
def test_any_text_gives_labels_or_our_error(yolo_set: Write, text: str) -> None:
    root = yolo_set(text, "0 .5 .5 .5 .5\n")
    try:
        index = read(root)
    except DataError as error:
        assert "a.txt line " in str(error)  # noqa: PT017
    else:
        assert (index.boxes[:, 2:] > index.boxes[:, :2]).all()
        assert np.isfinite(index.boxes).all()
