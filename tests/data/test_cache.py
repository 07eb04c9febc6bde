"""Caches of training pictures: bit for bit what the files give, found again, told apart when anything changed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import warnings
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from lucid_yolo.config.errors import DataError, RunError
from lucid_yolo.config.schema import BadImages, CacheConfig, CacheName, CachePlace, DataConfig, ExifOrientation
from lucid_yolo.data import cache as cache_module
from lucid_yolo.data.cache import cache_bytes, cache_exists, cached_shapes, open_cache
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.loader import TrainLoader
from lucid_yolo.data.source import PictureSource
from lucid_yolo.ops.letterbox import scaled_size
from tests.checkout import ROOT
from tests.data.splits import make_config, write_split
from tests.data.test_loader import assert_equal, drain

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="caches in memory are Linux's")
IMAGES = 10
KINDS = [CacheName.DECODED, CacheName.PREPARED]
PLACES = [CachePlace.MEMORY, CachePlace.DISK]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """A cache directory of its own, and no cache in memory."""
    monkeypatch.setenv("LUCID_YOLO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache_module, "_in_memory", cache_module._MemoryCaches())
    return tmp_path / "cache" / "pictures"


@pytest.fixture
def index(tmp_path) -> SplitIndex:
    (tmp_path / "pictures").mkdir()
    return write_split(tmp_path / "pictures", IMAGES)


def open_one(index, config, kind=CacheName.DECODED, place=CachePlace.MEMORY):
    return open_cache(index, config, CacheConfig(selected=kind, place=place), threads=2)


def batches(index: SplitIndex, config: DataConfig, pictures=None, *, workers: int = 0, context: str | None = None):
    loader = TrainLoader(
        index,
        config,
        seed=3,
        max_epochs=4,
        num_workers=workers,
        pin_memory=False,
        pictures=pictures,
        multiprocessing_context=context,
    )
    found = [*drain(loader), *drain(loader)]
    loader.close()
    return found


def damage(index: SplitIndex, image: int) -> None:
    Path(index.paths[image]).write_bytes(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(  # pictures of 40 to 89 pixels: all shrink, some do, none does
    ("place", "image_size"),
    [(CachePlace.MEMORY, 32), (CachePlace.MEMORY, 64), (CachePlace.MEMORY, 96), (CachePlace.DISK, 64)],
)
def test_batches_equal_the_uncached_ones(index, kind, place, image_size):
    config = make_config(image_size=image_size, mixup=0.3, degrees=5, close_mosaic=3)
    expected = batches(index, config)
    pictures, report = open_one(index, config, kind, place)
    assert (report.images, report.reused, report.unusable) == (IMAGES, False, 0)
    assert report.nbytes == cache_bytes(index.sizes, kind, image_size)
    for workers in (0, 2):
        assert_equal(batches(index, config, pictures, workers=workers), expected)


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_every_start_method_reads_it(index, context):
    config = make_config(image_size=32)
    pictures, _ = open_one(index, config, CacheName.PREPARED)
    assert_equal(batches(index, config, pictures, workers=1, context=context), batches(index, config))


def test_no_file_is_read_again(index):
    config = make_config(image_size=32)
    expected = batches(index, config)
    pictures, _ = open_one(index, config)
    for path in index.paths:
        os.unlink(path)
    assert_equal(batches(index, config, pictures), expected)


def test_the_data_set_that_is_sent_holds_no_pixels(tmp_path):
    index = write_split(tmp_path, 40)
    config = make_config(image_size=64)
    pictures, report = open_one(index, config)
    assert len(pickle.dumps(pictures)) < len(pickle.dumps(PictureSource(index, config))) + 4096 < report.nbytes / 10


@pytest.mark.parametrize("image_size", [32, 640])
def test_the_estimate_is_the_sum_over_the_pictures(image_size):
    sizes = np.random.default_rng(0).integers(1, 5000, (200, 2)).astype(np.int32)
    assert cache_bytes(sizes, CacheName.NONE, image_size) == 0
    assert cache_bytes(sizes, CacheName.DECODED, image_size) == sum(3 * int(w) * int(h) for w, h in sizes)
    scaled = [scaled_size(int(w), int(h), image_size) for w, h in sizes]
    assert cache_bytes(sizes, CacheName.PREPARED, image_size) == sum(3 * w * h for w, h in scaled)
    assert cached_shapes(sizes, CacheName.PREPARED, image_size)[:, ::-1].tolist() == [list(s) for s in scaled]


def test_the_estimate_of_a_large_set_does_not_overflow():
    assert cache_bytes(np.full((200_000, 2), 4000, np.int32), CacheName.DECODED, 640) == 200_000 * 3 * 4000 * 4000


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_image_is_named_when_the_cache_is_made(index, kind, place, folder):
    damage(index, 6)
    with pytest.raises(DataError, match=r"^image .*006\.png: .*data\.bad_images=skip"):
        open_one(index, make_config(), kind, place)
    assert not cache_exists(index, make_config(), CacheConfig(selected=kind, place=place))
    assert not [path for path in folder.glob("*") if path.suffix != ".lock"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_skipped_image_stays_blank_and_is_named(index, kind, place, workers):
    damage(index, 6)
    Path(index.paths[8]).write_bytes(cv2.imencode(".png", np.zeros((5, 5, 3), np.uint8))[1].tobytes())  # another size
    config = replace(make_config(image_size=48, mixup=0.3), bad_images=BadImages.SKIP)
    with pytest.warns(UserWarning, match="blank") as plain:
        expected = batches(index, config)
    pictures, report = open_one(index, config, kind, place)
    assert report.unusable == 2
    with pytest.warns(UserWarning, match="blank") as cached:
        assert_equal(batches(index, config, pictures, workers=workers), expected)
    assert {str(w.message) for w in cached} == {str(w.message) for w in plain}
    assert len(cached) == 2
    again, report = open_one(index, config, kind, place)
    assert (report.reused, report.unusable) == (True, 2)
    with pytest.raises(DataError, match=r"^image .*006\.png: .*data\.bad_images=skip"):  # and not passed on in silence
        open_one(index, replace(config, bad_images=BadImages.RAISE), kind, place)
    assert again(6).problem is not None


@pytest.mark.parametrize("place", PLACES)
def test_it_is_used_again_until_something_changes(index, place, folder):
    config = make_config(image_size=48)
    cache = CacheConfig(selected=CacheName.PREPARED, place=place)

    def opened(index: SplitIndex = index, config: DataConfig = config, kind: CacheName = CacheName.PREPARED) -> bool:
        expected = cache_exists(index, config, replace(cache, selected=kind))
        assert open_one(index, config, kind, place)[1].reused is expected
        return expected

    assert (opened(), opened()) == (False, True)
    assert not opened(config=replace(config, image_size=64))
    opened()
    assert not opened(config=replace(config, exif_orientation=ExifOrientation.IGNORE))
    opened()
    assert not opened(index=replace(index, class_names=("a", "b", "d")))
    assert not opened()
    os.utime(index.paths[2], ns=(5, 5))
    assert not opened()
    Path(index.paths[3]).write_bytes(Path(index.paths[3]).read_bytes() + b"more")
    assert not opened()
    assert not opened(kind=CacheName.DECODED)
    assert opened(config=replace(config, image_size=64), kind=CacheName.DECODED)  # those bytes have no canvas


def test_stale_files_are_removed_once_nobody_has_them_open(index, folder):
    config = make_config(image_size=48)
    first, _ = open_one(index, config, place=CachePlace.DISK)
    pixels = first(0).pixels.copy()
    os.utime(index.paths[0], ns=(7, 7))
    open_one(index, config, place=CachePlace.DISK)
    assert len(list(folder.glob("*.arena"))) == 2
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(first))(0).pixels, pixels)  # a worker that comes late
    del first
    open_one(index, config, place=CachePlace.DISK)
    assert len(list(folder.glob("*.arena"))) == 1


@pytest.mark.parametrize("keep", [0, 100, -1])
def test_a_damaged_file_is_made_again(index, folder, keep):
    config = make_config(image_size=48)
    expected = open_one(index, config, place=CachePlace.DISK)[0](4).pixels.copy()
    (path,) = folder.glob("*.arena")
    path.write_bytes(path.read_bytes()[:keep])
    pictures, report = open_one(index, config, place=CachePlace.DISK)
    assert not report.reused
    np.testing.assert_array_equal(pictures(4).pixels, expected)


def test_a_cache_in_memory_gives_way_to_the_next_one_and_lives_while_it_is_read(index):
    first, _ = open_one(index, make_config(image_size=32), CacheName.PREPARED)
    path = first._images.arena.path
    open_one(index, make_config(image_size=64), CacheName.PREPARED)
    assert first(0).pixels.shape[1] <= 32
    assert os.path.exists(path)
    assert not open_one(index, make_config(image_size=32), CacheName.PREPARED)[1].reused
    del first
    assert not os.path.exists(path)


def test_progress_counts_every_picture(index):
    told: list[int] = []
    open_cache(index, make_config(), CacheConfig(selected=CacheName.DECODED), threads=2, advance=told.append)
    assert sum(told) == IMAGES


BUILD = """
    import pickle, sys, time
    from pathlib import Path
    from lucid_yolo.config.schema import CacheConfig, CacheName, CachePlace
    from lucid_yolo.data.cache import open_cache
    from tests.data.splits import make_config
    index = pickle.loads(Path(sys.argv[1]).read_bytes())
    cache = CacheConfig(selected=CacheName.DECODED, place=CachePlace.DISK)
    def advance(done):
        if sys.argv[2] == "stop":
            print("begun", flush=True)
            time.sleep(60)
    _, report = open_cache(index, make_config(), cache, threads=1, advance=advance)
    print(report.reused)
"""


def start(index: SplitIndex, tmp_path: Path, how: str) -> subprocess.Popen[str]:
    sent = tmp_path / "index.pickle"
    sent.write_bytes(pickle.dumps(index))
    command = [sys.executable, "-c", textwrap.dedent(BUILD), str(sent), how]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def test_two_processes_at_once_make_one_file(index, tmp_path, folder):
    runs = [start(index, tmp_path, "go") for _ in range(3)]
    words = sorted(run.communicate(timeout=300)[0].strip() for run in runs)
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert words == ["False", "True", "True"]
    assert len(list(folder.glob("*.arena"))) == 1


def test_a_process_killed_at_work_leaves_nothing_that_counts(index, tmp_path, folder):
    process = start(index, tmp_path, "stop")
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.kill()
    process.wait()
    process.stdout.close()
    assert [path.suffix for path in folder.iterdir() if path.suffix != ".lock"] == [".part"]
    assert not cache_exists(index, make_config(), CacheConfig(selected=CacheName.DECODED, place=CachePlace.DISK))
    _, report = open_one(index, make_config(), place=CachePlace.DISK)
    assert not report.reused
    assert [path.suffix for path in folder.iterdir() if path.suffix != ".lock"] == [".arena"]


def test_a_folder_that_cannot_be_written_is_named(index, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LUCID_YOLO_CACHE", str(tmp_path / "file"))
    with pytest.raises(
        RunError, match=r"cannot be written to .*file/pictures: not a directory; set .*LUCID_YOLO_CACHE"
    ):
        open_one(index, make_config(), place=CachePlace.DISK)


def test_nothing_is_said_when_all_is_well(index):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batches(index, make_config(), open_one(index, make_config())[0], workers=2)


def test_shapes_by_hand():
    sizes = np.array([[64, 48], [16, 32]])
    assert cached_shapes(sizes, CacheName.PREPARED, 32).tolist() == [[24, 32], [32, 16]]
    assert cached_shapes(sizes, CacheName.DECODED, 32).tolist() == [[48, 64], [32, 16]]
    assert cache_bytes(sizes, CacheName.PREPARED, 32) == 3 * (24 * 32 + 32 * 16)
