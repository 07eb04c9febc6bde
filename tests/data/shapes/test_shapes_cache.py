from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from pycocotools.coco import COCO

from lucid_yolo.config.errors import ConfigError, DataError
from lucid_yolo.config.paths import cache_directory
from lucid_yolo.config.schema import DataConfig, ExifOrientation
from lucid_yolo.data.image import read_image
from lucid_yolo.data.readers import read_split, read_splits
from lucid_yolo.data.shapes import cache as shapes_cache
from lucid_yolo.data.shapes.cache import ShapesSpec, annotation_file, ensure_shapes, image_folder
from lucid_yolo.data.shapes.scene import draw_scene, object_mask

SMALL = ShapesSpec(num_train=6, num_val=3, image_size=96, seed=5)
OPTIONS = {"num_train": 6, "num_val": 3, "image_size": 96, "seed": 5}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LUCID_YOLO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_reader_gives_what_was_drawn(cache: Path) -> None:
    train, val = read_splits(DataConfig(format="shapes", options=OPTIONS))
    assert (len(train), len(val)) == (6, 3)
    assert train.class_names == ("ellipse", "rectangle", "triangle", "star")
    assert str(cache) in train.paths[0]
    for number, split in enumerate((train, val)):
        for i in range(len(split)):
            scene = draw_scene((5, number, i), size=96)
            rows = split.rows(i)
            np.testing.assert_allclose(split.boxes[rows], [shape.box for shape in scene.shapes], atol=0.011)
            assert split.classes[rows].tolist() == [shape.label for shape in scene.shapes]
            pixels = read_image(split.paths[i], exif=ExifOrientation.APPLY)
            assert np.abs(pixels.astype(int) - scene.image).mean() < 6  # JPEG
    assert not train.crowd.any()


def test_json_serves_all_tasks_and_loads_with_pycocotools(cache: Path) -> None:
    folder = ensure_shapes(SMALL)
    truth = COCO(str(annotation_file(folder, "train")))
    assert truth.loadCats(1)[0]["keypoints"] == ["center", "head", "tail"]
    for i, image_id in enumerate(truth.getImgIds()):
        shapes = draw_scene((5, 0, i), size=96).shapes
        annotations = truth.loadAnns(truth.getAnnIds(image_id))
        assert len(annotations) == len(shapes)
        for annotation, shape in zip(annotations, shapes, strict=True):
            drawn, decoded = object_mask(shape, (96, 96)), truth.annToMask(annotation).astype(bool)
            border = cv2.arcLength(shape.outline.astype(np.float32), closed=True)
            assert (drawn ^ decoded).sum() < 0.4 * border  # the two rasters round the outline differently
            assert annotation["area"] == pytest.approx(drawn.sum(), rel=0.1)
            assert len(annotation["keypoints"]) == 9
            assert set(annotation["keypoints"][2::3]) <= {1, 2}
            assert np.array(annotation["corners"]).reshape(4, 2).tolist() == shape.corners.tolist()


def test_a_set_is_drawn_once(cache: Path) -> None:
    folder = ensure_shapes(SMALL)
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert ensure_shapes(SMALL) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == times
    assert [path.name for path in cache.iterdir()] == [SMALL.folder_name]  # no drafts are left


def test_parameters_have_folders_of_their_own() -> None:
    specs = [SMALL, *(replace(SMALL, **{key: value + 1}) for key, value in OPTIONS.items())]
    assert len({spec.folder_name for spec in specs}) == 5


def test_a_damaged_set_is_drawn_again(cache: Path) -> None:
    folder = ensure_shapes(SMALL)
    before = json.loads(annotation_file(folder, "val").read_text())
    next(image_folder(folder, "train").iterdir()).unlink()
    annotation_file(folder, "val").unlink()
    assert ensure_shapes(SMALL) == folder
    assert len(list(image_folder(folder, "train").iterdir())) == 6
    assert json.loads(annotation_file(folder, "val").read_text()) == before


def test_processes_that_draw_at_once(cache: Path) -> None:
    code = (
        "from lucid_yolo.data.shapes.cache import *\n"
        "print(ensure_shapes(ShapesSpec(num_train=6, num_val=3, image_size=96, seed=5)))"
    )
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    runs = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(3)
    ]
    outputs = [run.communicate(timeout=300)[0].strip() for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert set(outputs) == {str(cache / SMALL.folder_name)}
    assert [path.name for path in cache.iterdir()] == [SMALL.folder_name]


def test_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LUCID_YOLO_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match=r"cannot be written to .*file/cache: not a directory; set .* LUCID_YOLO_CACHE"):
        ensure_shapes(SMALL)


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUCID_YOLO_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_directory() == tmp_path / ".cache" / "lucid_yolo"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "lucid_yolo"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_directory() == tmp_path / "Library" / "Caches" / "lucid_yolo"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache_directory() == tmp_path / "local" / "lucid_yolo" / "Cache"
    monkeypatch.setenv("LUCID_YOLO_CACHE", "~/mine")
    assert cache_directory() == tmp_path / "mine"


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"data.options.num_trian: .*did you mean 'num_train'\?"):
        read_split(DataConfig(format="shapes", options={"num_trian": 3}), "train")
    wrong = DataConfig(format="shapes", root="x", options={"num_val": 0, "image_size": "big"})
    with pytest.raises(ConfigError, match="3 problems") as caught:
        read_split(wrong, "train")
    assert "data.root: the embedded set is drawn into the cache directory" in str(caught.value)
    assert "data.options.num_val=0: a whole number of at least 1 is needed" in str(caught.value)
    assert "data.options.image_size='big': a whole number of at least 64 is needed" in str(caught.value)


def test_a_set_that_several_processes_draw_is_the_same(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(SMALL, num_train=7, image_size=128, image_height=96, max_objects=9)
    alone = ensure_shapes(spec)
    labels = json.loads(annotation_file(alone, "train").read_text())
    assert {(image["width"], image["height"]) for image in labels["images"]} == {(128, 96)}
    pictures = {path.name: path.read_bytes() for path in image_folder(alone, "train").iterdir()}
    shutil.rmtree(alone)
    monkeypatch.setattr(shapes_cache, "_PIXELS_A_PROCESS", 1)
    monkeypatch.setattr(shapes_cache, "_MOST_PROCESSES", 3)
    together = ensure_shapes(spec)
    assert json.loads(annotation_file(together, "train").read_text()) == labels
    assert {path.name: path.read_bytes() for path in image_folder(together, "train").iterdir()} == pictures
    assert [path.name for path in cache.iterdir()] == [spec.folder_name]


def test_a_drawing_process_that_fails_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes_cache, "_PIXELS_A_PROCESS", 1)
    monkeypatch.setattr(shapes_cache, "_MOST_PROCESSES", 2)
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(DataError, match=r"failed with exit codes \[1, 1\]"):
        ensure_shapes(SMALL)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(("megapixels", "count"), [(9, 1), (13, 1), (25, 2), (147, 6), (9000, 6)])
def test_how_many_processes_draw(megapixels: int, count: int) -> None:
    assert shapes_cache._processes(megapixels * 1_000_000) == count
