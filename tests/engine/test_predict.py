"""Predictions: what a source may be, what is refused, and where boxes lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import lucid_yolo as ly
from lucid_yolo.config.errors import DataError
from tests.engine.tiny import NANO, learn, tiny_config

RAMP = (np.arange(40 * 200 * 3) % 251).astype(np.uint8).reshape(40, 200, 3)  # flat: 200 x 40


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps."""
    path = tmp_path_factory.mktemp("predict") / "run"
    learn(tiny_config(path, *NANO, "trainer.max_steps=2"))
    return path


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RAMP).save(path)
    return path


def names(found: Any) -> list[str]:
    return [Path(one.name).name for one in found]


def test_a_folder_gives_its_pictures_only(run_dir: Path, tmp_path: Path) -> None:
    for name in ("b.png", "a.PNG", "below/c.png"):
        write(tmp_path / name)
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "notes.txt").write_text("no picture")
    assert names(ly.predict(run_dir, tmp_path)) == ["a.PNG", "b.png"]
    assert names(ly.predict(run_dir, tmp_path / "**" / "*.png")) == ["b.png", "c.png"]


def test_brackets_in_names_are_no_pattern(run_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "set [1] \u65e5"
    write(folder / "a [x].png")
    assert names(ly.predict(run_dir, folder)) == ["a [x].png"]
    assert names(ly.predict(run_dir, folder / "a [x].png")) == ["a [x].png"]
    assert names(ly.predict(run_dir, f"{folder}/*.png")) == ["a [x].png"]


def test_a_bad_picture_of_a_folder_is_left_out_and_a_named_one_stops(run_dir: Path, tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.png")
    bad = tmp_path / "in" / "b.jpg"
    bad.write_bytes(b"")
    out = tmp_path / "out"
    with pytest.warns(UserWarning, match=r"b\.jpg: the file is empty \(0 bytes\); left out"):
        found = ly.predict(run_dir, tmp_path / "in", out=str(out), confidence=0.0)
    assert names(found) == ["a.png"]
    assert {Path(r["file_name"]).name for r in json.loads((out / "predictions.json").read_text())} == {"a.png"}
    with pytest.raises(DataError, match=r"b\.jpg: the file is empty"):
        ly.predict(run_dir, bad)
    (tmp_path / "in" / "a.png").write_bytes(b"no picture")
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(DataError, match="none of the 2 pictures can be read"),
    ):
        ly.predict(run_dir, tmp_path / "in")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "source is empty"),
        ("https://example.com/a.jpg", "addresses are not downloaded"),
        ("nowhere.jpg", "no such file or folder"),
        ("*.nothing", "the pattern matches no file"),
        (None, "type NoneType is no picture"),
        (Image.fromarray(RAMP), "type Image is no picture"),
        (RAMP[..., 0], r"shape \(40, 200\) and type uint8"),
        (RAMP / np.float32(255), "type float32 was given"),
        (RAMP[:0], r"shape \(0, 200, 3\)"),
    ],
)
def test_what_is_no_picture(run_dir: Path, source: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ly.predict(run_dir, source)


@pytest.mark.parametrize("decode", ["one_to_one", "one_to_many"])
def test_boxes_are_pixels_of_the_original_picture(run_dir: Path, decode: str) -> None:
    (flat,) = ly.predict(run_dir, RAMP, confidence=0.0, decode=decode)
    (tall,) = ly.predict(run_dir, RAMP.transpose(1, 0, 2), confidence=0.0, decode=decode)
    assert flat.pixels.shape == (40, 200, 3)
    for one, (width, height) in ((flat, (200, 40)), (tall, (40, 200))):
        boxes = one.detections.boxes
        assert len(boxes) > 0
        assert (boxes >= 0).all()
        assert (boxes[:, 2] <= width).all()
        assert (boxes[:, 3] <= height).all()
        assert (boxes[:, 2:] > boxes[:, :2]).all()
    assert flat.detections.boxes[:, 2].max() > 100  # beyond the 96 px canvas
    assert tall.detections.boxes[:, 3].max() > 100
    assert flat.records()[0]["category_id"] == flat.records()[0]["class_id"] + 1  # the drawn set counts from 1
