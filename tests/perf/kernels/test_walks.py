"""How maps are shared out among walks: by hand, and what holds for all."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucid_yolo.perf.kernels.walks import Walks, Window, Windows, share_out

WINDOW = Window(columns=8, channels=64, rows=4, warps=4, programs=1024)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        # 80 columns are 10 windows. 64 pictures have 640 walks, so each needs two groups of its rows.
        ((64, 64, 80, 80), Walks(lines=40, groups=2, shares=1280, programs=1280)),
        # 40 walks down whole pictures: even the shortest ones are too few.
        ((4, 64, 80, 80), Walks(lines=4, groups=20, shares=800, programs=800)),
        # 20 columns are 3 windows, 256 channels 4: 768 walks, and half of five steps of 4 rows are two.
        ((64, 256, 20, 20), Walks(lines=8, groups=3, shares=576, programs=2304)),
        ((1, 1, 1, 1), Walks(lines=4, groups=1, shares=1, programs=1)),
    ],
)
def test_walks_by_hand(shape: tuple[int, int, int, int], expected: Walks) -> None:
    assert share_out(*shape, WINDOW) == expected


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 200), st.integers(1, 200), st.sampled_from([1, 2, 4]))
def test_every_number_belongs_to_one_walk(batch: int, channels: int, height: int, width: int, rows: int) -> None:
    window = Window(columns=8, channels=32, rows=rows, warps=4, programs=500)
    walks = share_out(batch, channels, height, width, window)
    assert (walks.groups - 1) * walks.lines < height <= walks.groups * walks.lines
    assert walks.shares == batch * walks.groups * math.ceil(width / 8)
    assert walks.programs == walks.shares * math.ceil(channels / 32)
    assert walks.lines % rows == 0
    assert walks.lines == rows or walks.programs >= 500


def test_aligned_channels_have_a_window_of_their_own() -> None:
    other = Window(columns=16, channels=32, rows=4, warps=4, programs=1024)
    windows = Windows(aligned=WINDOW, other=other)
    assert [windows.of(channels) is WINDOW for channels in (16, 21, 42, 80, 85)] == [True, False, False, True, False]
