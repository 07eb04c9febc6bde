"""Windows by hand, and what every cover of a picture must fulfil."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucid_yolo.ops.tiling import windows


def test_a_cover_by_hand() -> None:
    # Width 250: windows of 100 that overlap by at least 20 start at 0, 75 and 150, and 87.5 and 162.5 are the middles.
    # Height 60: one row.
    found = windows(250, 60, 100, 20)
    assert [(w.x, w.y, w.width, w.height) for w in found] == [(0, 0, 100, 60), (75, 0, 100, 60), (150, 0, 100, 60)]
    inf = math.inf
    assert [w.core for w in found] == [(-inf, -inf, 87.5, inf), (87.5, -inf, 162.5, inf), (162.5, -inf, inf, inf)]
    places = np.array([[-3.0, 70.0], [87.4, 0.0], [87.5, 0.0], [260.0, 5.0]])
    assert [w.owns(places).tolist() for w in found] == [
        [True, True, False, False],
        [False, False, True, False],
        [False, False, False, True],
    ]


def test_rows_come_one_after_the_other() -> None:
    assert [(w.x, w.y) for w in windows(150, 180, 100, 20)] == [(0, 0), (50, 0), (0, 80), (50, 80)]


@pytest.mark.parametrize("sides", [(100, 100), (40, 30), (1, 1)])
def test_a_small_picture_is_one_window(sides: tuple[int, int]) -> None:
    (window,) = windows(*sides, 100, 20)
    assert (window.x, window.y, window.width, window.height) == (0, 0, *sides)
    assert window.core == (-math.inf, -math.inf, math.inf, math.inf)


@pytest.mark.parametrize("overlap", [-1, 100, 101])
def test_an_overlap_out_of_range(overlap: int) -> None:
    with pytest.raises(ValueError, match=f"overlap {overlap} must be at least 0 and less than the window's size 100"):
        windows(250, 60, 100, overlap)


@settings(deadline=None)
@given(st.integers(1, 500), st.integers(1, 500), st.integers(20, 120), st.data())
def test_every_object_up_to_the_overlap_lies_whole_in_the_window_that_answers_for_it(
    width: int, height: int, size: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, size * 3 // 4))
    cover = windows(width, height, size, overlap)
    for window in cover:
        assert window.x >= 0
        assert window.x + window.width <= width
        assert window.y + window.height <= height
    x, y = data.draw(st.floats(0, width)), data.draw(st.floats(0, height))
    owners = [window for window in cover if window.owns(np.array([[x, y]]))[0]]
    assert len(owners) == 1
    (owner,) = owners
    for place, start, side, length in ((x, owner.x, owner.width, width), (y, owner.y, owner.height, height)):
        # An object as long as the overlap, where the picture has room for it around its centre.
        assert start <= max(place - overlap / 2, 0) + 1e-9
        assert start + side >= min(place + overlap / 2, length) - 1e-9
