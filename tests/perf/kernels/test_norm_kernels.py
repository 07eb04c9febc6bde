"""The kernels of normalisation in Triton's interpreter, and how they share rows out; compiled: ``tests/gpu``."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucid_yolo.perf.kernels.tiling import tile
from tests.checkout import run_python


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed here")
def test_they_equal_autograd_in_float64() -> None:
    done = run_python("-m", "tests.perf.kernels.interpreted_norm")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "8 splits, 4 at a time" in lines
    checks = ("shapes", "many", "large_mean", "half", "orders", "parts", "examples", "blocks", "modes")
    assert [line for line in lines if line.endswith(": ok")] == [f"{check}: ok" for check in checks]


@given(
    rows=st.integers(2, 10_000_000),
    channels=st.integers(1, 1100),
    programs=st.integers(1, 600),
    elements=st.sampled_from([2048, 4096]),
)
def test_splits_cover_every_row_once_and_none_is_empty(rows, channels, programs, elements):
    found = tile(rows, channels, elements=elements, programs=programs)
    assert found.block_rows * found.block_channels == elements
    a_split = found.tiles * found.block_rows
    assert (found.splits - 1) * a_split < rows <= found.splits * a_split
    assert (found.blocks - 1) * found.block_channels < channels <= found.blocks * found.block_channels
    assert found.grid == (found.splits, found.blocks)
    assert found.splits * found.blocks <= max(programs, found.blocks)


@pytest.mark.parametrize(
    ("batch", "side", "channels", "grid", "tiles"),
    [  # 132 multiprocessors, three programs on each
        (4, 20, 256, (25, 4), 1),  # a small map: a program has 64 rows of 64 channels
        (4, 80, 64, (100, 1), 4),
        (64, 320, 16, (394, 1), 65),  # a large one: every program that the device can run at a time
        (4, 80, 21, (100, 1), 2),  # blocks of 32: a third is idle
        (4, 40, 85, (50, 3), 1),
    ],
)
def test_grids_of_an_h200(batch, side, channels, grid, tiles):
    found = tile(batch * side * side, channels, elements=4096, programs=3 * 132)
    assert (found.grid, found.tiles) == (grid, tiles)
