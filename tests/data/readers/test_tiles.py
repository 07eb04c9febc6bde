"""Tiles: pixels and corners against the whole picture, the cache, and what stays uncut."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import shapely
from numpy.typing import NDArray

from lucid_yolo.config.compose import compose, to_root
from lucid_yolo.config.errors import ConfigError, DataError
from lucid_yolo.config.schema import BadImages, DataConfig
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import LabelKind
from lucid_yolo.data.labels.corners import CornerLabels
from lucid_yolo.data.readers import read_split
from lucid_yolo.data.readers.tiles import TileRule, idle_note, tile_rule
from lucid_yolo.ops.rotated_np import corners
from lucid_yolo.ops.tiling import windows

WIDTH, HEIGHT = 200, 90
CUT = {"tile": 64, "overlap": 16}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of the test's own."""
    monkeypatch.setenv("LUCID_YOLO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def large_set(tmp_path: Path, cache: Path) -> Callable[..., Path]:
    """Write one large and one small picture a split with smooth colours; returns the root."""

    def write(boxes: NDArray[np.float64]) -> Path:
        y, x = np.mgrid[:HEIGHT, :WIDTH]
        picture = np.stack((x, y * 2, 128 + 0 * x), -1).astype(np.uint8)
        lines = [" ".join(f"{v:.4f}" for v in one.ravel()) + " car 0\n" for one in corners(boxes)]
        for split in ("train", "val"):
            for folder in ("images", "labelTxt"):
                (tmp_path / "set" / split / folder).mkdir(parents=True)
            root = tmp_path / "set" / split
            cv2.imwrite(str(root / "images" / "big.png"), picture[..., ::-1])
            cv2.imwrite(str(root / "images" / "small.png"), picture[:40, :50, ::-1])
            (root / "labelTxt" / "big.txt").write_text("".join(lines))
            (root / "labelTxt" / "small.txt").write_text("1 1 9 1 9 9 1 9 car 0\n")
        return tmp_path / "set"

    return write


def read(root: Path, options: dict[str, Any] | None = None, **keys: Any) -> SplitIndex:
    config = DataConfig(format="dota", root=str(root), options=CUT if options is None else options, **keys)
    return read_split(config, "train", LabelKind.CORNERS)


def test_tiles_show_the_picture_and_its_objects_by_their_share(large_set: Callable[..., Path]) -> None:
    generator = np.random.default_rng(0)
    low, high = [0, 0, 8, 6, 0], [WIDTH, HEIGHT, 60, 30, 3]
    boxes = generator.uniform(low, high, (25, 5))
    index = read(large_set(boxes))
    cover = windows(WIDTH, HEIGHT, 64, 16)
    assert len(index) == len(cover) + 1 == 9
    assert index.paths[-1].endswith("set/train/images/small.png")
    assert isinstance(index.labels, CornerLabels)
    whole = [shapely.Polygon(one) for one in corners(boxes)]
    difficult = 0
    for i, window in enumerate(cover):
        tile = cv2.imread(index.paths[i])
        assert tile is not None
        assert tile.shape == (64, 64, 3)
        y, x = np.mgrid[:64, :64]
        expected = np.stack((128 + 0 * x, (y + window.y) * 2, x + window.x), -1)
        assert np.abs(tile.astype(int) - expected).mean() < 3  # JPEG
        region = shapely.box(window.x, window.y, window.x + 64, window.y + 64)
        shares = [one.intersection(region).area / one.area for one in whole]
        kept = [n for n, share in enumerate(shares) if share >= 0.1]
        rows = index.rows(i)
        expected_corners = corners(boxes)[kept] - [window.x, window.y]
        np.testing.assert_allclose(index.labels.corners[rows], expected_corners, atol=1e-3)
        assert index.crowd[rows].tolist() == [shares[n] < 0.7 for n in kept]
        difficult += int(index.crowd[rows].sum())
    assert 0 < difficult < len(index.crowd)
    assert index.sizes.tolist() == [[64, 64]] * 8 + [[50, 40]]
    assert index.notes[0].startswith("2 images give 9 tiles of up to 64 pixels, kept in ")


def test_small_pictures_are_not_said_to_be_cut(large_set: Callable[..., Path]) -> None:
    root = large_set(np.array([[100.0, 40.0, 20.0, 10.0, 0.2]]))
    assert read(root, {"tile": 1024}).notes[0].startswith("no image is larger than data.options.tile=1024")


def test_an_overlap_without_tiles_is_named_and_one_with_tiles_has_a_default(large_set: Callable[..., Path]) -> None:
    root = large_set(np.array([[100.0, 40.0, 20.0, 10.0, 0.2]]))
    for options in ({"tile": None, "overlap": 50}, {"overlap": 50}):
        assert read(root, options).notes[0].startswith("data.options.overlap=50 does nothing: it is of tiles")
    for options in ({"tile": None, "overlap": None}, {}, CUT):
        assert not any("does nothing" in note for note in read(root, options).notes)
    shipped = to_root(compose(["data=dota", "task=obb", "data.root=x"])).data
    assert tile_rule(shipped) == TileRule(size=1024, overlap=200)
    whole = to_root(compose(["data=dota", "task=obb", "data.root=x", "data.options.tile=null"])).data
    assert (tile_rule(whole), idle_note(whole)) == (None, None)


def test_a_second_run_cuts_nothing_and_a_changed_picture_is_cut_again(large_set: Callable[..., Path]) -> None:
    root = large_set(np.array([[100.0, 40.0, 20.0, 10.0, 0.2]]))
    first = read(root)
    times = [Path(path).stat().st_mtime_ns for path in first.paths]
    Path(first.paths[3]).unlink()
    again = read(root)
    assert again.paths == first.paths
    assert Path(first.paths[3]).is_file()
    assert [Path(path).stat().st_mtime_ns for path in first.paths[-1:]] == times[-1:]
    folder = Path(first.paths[0]).parent
    assert len(list(folder.iterdir())) == 8  # no drafts are left
    cv2.imwrite(str(root / "train" / "images" / "big.png"), np.zeros((HEIGHT, WIDTH, 3), np.uint8))
    changed = read(root)
    assert not set(changed.paths[:8]) & set(first.paths)
    assert cv2.imread(changed.paths[0]).max() == 0
    assert read(root, {"tile": None}).paths == tuple(
        str(root / "train" / "images" / f"{name}.png") for name in ("big", "small")
    )


def test_messages_about_a_tile_name_the_line_of_the_label_file(large_set: Callable[..., Path]) -> None:
    root = large_set(np.array([[100.0, 40.0, 20.0, 10.0, 0.2]]))
    file = root / "train" / "labelTxt" / "big.txt"
    file.write_text(file.read_text() + "90 30 120 30 120 60 90 60 bus 0\n")
    with pytest.raises(DataError, match=r"big.txt line 2: class 'bus'; allowed: car"):
        read(root, {**CUT, "classes": ["car"]})


def test_a_truncated_picture_follows_the_policy(large_set: Callable[..., Path]) -> None:
    root = large_set(np.array([[100.0, 40.0, 20.0, 10.0, 0.2]]))
    file = root / "train" / "images" / "big.png"
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"big.png: the PNG file is truncated"):
        read(root)
    assert [Path(path).name for path in read(root, bad_images=BadImages.SKIP).paths] == ["big.png", "small.png"]
    file.write_bytes(b"")
    with pytest.raises(DataError, match=r"big.png") as caught:
        read(root)
    assert str(caught.value).count("big.png") == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tile": 16}, "tile=16: a whole number of pixels, at least 32"),
        ({"tile": 64.5}, "tile=64.5: a whole number"),
        ({"tile": 64, "overlap": 64}, "overlap=64: a whole number from 0 to 63 is needed"),
        ({"tile": 64, "overlap": -1}, "overlap=-1: a whole number from 0 to 63"),
    ],
)
def test_options_that_are_refused(large_set: Callable[..., Path], options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=rf"data.options.{text}"):
        read(large_set(np.zeros((0, 5))), options)
