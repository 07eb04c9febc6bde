"""The arena: one shared copy under every start method, small to send, read-only, gone with its process."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from lucid_yolo.config.errors import RunError
from lucid_yolo.data.arena import Arena, HeldFile, fill, layout, memory_file
from tests.checkout import ROOT
from tests.data.arena_readers import read_all

linux = pytest.mark.skipif(sys.platform != "linux", reason="anonymous memory files and /proc are Linux's")
SIDE = 512
COUNT = 24  # 18 MiB


def picture(image: int, height: int = SIDE, width: int = SIDE) -> np.ndarray:
    return np.random.default_rng(image).integers(0, 256, (height, width, 3), dtype=np.uint8)


def make_file(place: str, folder: Path) -> HeldFile:
    if place == "memory":
        return memory_file()
    path = folder / "block"
    return HeldFile(os.open(path, os.O_RDWR | os.O_CREAT), str(path))


def make_arena(held: HeldFile, count: int = COUNT) -> Arena:
    place = layout(np.full((count, 2), SIDE))
    fill(held.descriptor, place, picture, threads=2, advance=lambda _: None)
    return Arena(held.path, place.offsets, place.shapes, held)


def test_layout_by_hand():
    place = layout(np.array([[2, 3], [1, 1], [4, 5]]))
    assert place.offsets.tolist() == [0, 18, 21, 81]
    assert place.nbytes == 81


@linux
def test_pictures_of_any_size_come_back_and_cannot_be_written():
    shapes = np.array([[5, 7], [1, 1], [64, 3], [9, 9]])
    place, held, told = layout(shapes), memory_file(), []
    fill(held.descriptor, place, lambda i: picture(i, *shapes[i]), threads=3, advance=told.append)
    arena = Arena(held.path, place.offsets, place.shapes, held)
    assert (len(arena), arena.nbytes, sum(told)) == (4, place.nbytes, 4)
    for i, (height, width) in enumerate(shapes.tolist()):
        np.testing.assert_array_equal(arena[i], picture(i, height, width))
    with pytest.raises(ValueError, match="read-only"):
        arena[0][0, 0, 0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        arena[0].setflags(write=True)


@linux
def test_what_travels_is_a_path():
    arena = make_arena(memory_file())
    assert arena[3].any()  # mapped here already
    sent = pickle.dumps(arena)
    assert len(sent) < 4096 < arena.nbytes
    np.testing.assert_array_equal(pickle.loads(sent)[3], picture(3))


@linux
@pytest.mark.parametrize("place", ["memory", "disk"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_share_one_copy(method, place, tmp_path):
    arena = make_arena(make_file(place, tmp_path))
    context = multiprocessing.get_context(method)
    everyone = context.Barrier(2)
    pipes = [context.Pipe(duplex=False) for _ in range(2)]
    workers = [context.Process(target=read_all, args=(arena, everyone, send)) for _, send in pipes]
    for worker in workers:
        worker.start()
    found = [receive.recv() for receive, _ in pipes]
    for worker in workers:
        worker.join()
    expected = sum(int(picture(i).astype(np.int64).sum()) for i in range(COUNT))
    size = arena.nbytes / 1024
    for total, sizes in found:
        assert total == expected
        assert sizes["Rss"] >= size  # it sees all of it ...
        assert sizes["Pss"] == pytest.approx(size / 2, rel=0.02)  # ... and pays for its half
        assert sizes["Private_Dirty"] == 0


@linux
def test_memory_is_freed_with_the_last_reader_and_with_a_killed_process():
    """``kill -9`` leaves no file: the memory has no name to be found by."""
    code = """
        import numpy as np, sys, time
        from lucid_yolo.data.arena import Arena, fill, layout, memory_file
        place, held = layout(np.full((4, 2), 512)), memory_file()
        fill(held.descriptor, place, lambda i: np.full((512, 512, 3), i, np.uint8), threads=1, advance=lambda _: None)
        print(held.path, flush=True)
        time.sleep(60)
    """
    before = set(os.listdir("/dev/shm"))
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    path = process.stdout.readline().strip()
    assert Path(path).stat().st_size == 4 * 3 * 512 * 512
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not Path(path).exists()
    assert set(os.listdir("/dev/shm")) <= before
    place = layout(np.full((4, 2), 512))
    with pytest.raises(RunError, match=r"cannot be read .*the process that made it is gone"):
        Arena(path, place.offsets, place.shapes)[0]


@linux
def test_a_dropped_arena_closes_its_file():
    arena = make_arena(memory_file(), count=1)
    path = arena.path
    assert os.path.exists(path)
    del arena
    assert not os.path.exists(path)


def test_a_file_that_is_too_short_is_refused(tmp_path):
    (tmp_path / "block").write_bytes(b"1234")
    place = layout(np.array([[2, 2]]))
    with pytest.raises(RunError, match="cannot be read"):
        Arena(str(tmp_path / "block"), place.offsets, place.shapes)[0]


@linux
def test_an_error_while_filling_reaches_the_caller():
    def load(image: int) -> np.ndarray:
        raise RunError(f"picture {image}")

    held = memory_file()
    with pytest.raises(RunError, match="picture 0"):
        fill(held.descriptor, layout(np.full((40, 2), 4)), load, threads=2, advance=lambda _: None)
