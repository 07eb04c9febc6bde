"""Run lengths against pycocotools, and what is refused before it reaches pycocotools."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray
from pycocotools import mask as coco_mask

from lucid_yolo.data.readers.parsers.base import UnusableLabelError
from lucid_yolo.data.readers.parsers.run_lengths import read_run_lengths


def encoded(mask: NDArray[np.bool_]) -> dict[str, Any]:
    rle = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": rle["size"], "counts": rle["counts"].decode("ascii")}


def runs_of(mask: NDArray[np.bool_]) -> list[int]:
    counts, last = [0], False
    for value in mask.T.ravel().tolist():
        if value != last:
            counts.append(0)
            last = value
        counts[-1] += 1
    return counts


@settings(deadline=None, max_examples=80)
@given(arrays(np.bool_, array_shapes(min_dims=2, max_dims=2, max_side=12)))
def test_text_and_list_are_the_mask(mask: NDArray[np.bool_]) -> None:
    text = encoded(mask)
    for segmentation in (text, {"size": text["size"], "counts": runs_of(mask)}):
        run, found = read_run_lengths(segmentation)
        np.testing.assert_array_equal(found, mask)
        assert (run.height, run.width, run.counts) == (*mask.shape, text["counts"].encode("ascii"))


def test_long_runs_take_several_characters() -> None:
    mask = np.zeros((700, 900), np.bool_)
    mask[100:650, 3] = mask[5:60, 500] = mask[:, 899] = True
    np.testing.assert_array_equal(read_run_lengths(encoded(mask))[1], mask)


@settings(deadline=None, max_examples=200)
@given(st.text(st.characters(min_codepoint=32, max_codepoint=300), max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        _, mask = read_run_lengths({"size": [5, 7], "counts": text})
    except UnusableLabelError:
        return
    assert encoded(mask)["counts"] or mask.shape == (5, 7)


@pytest.mark.parametrize(
    ("segmentation", "message"),
    [
        ({"counts": [4]}, "the size of its RLE is None; [height, width] in pixels is needed"),
        ({"size": [2], "counts": [2]}, "the size of its RLE is [2]"),
        ({"size": [0, 4], "counts": []}, "the size of its RLE is [0, 4]"),
        ({"size": [10**6, 10**6], "counts": [10**12]}, "the size of its RLE is [1000000, 1000000]"),
        ({"size": [2, 2], "counts": [10**30]}, "neither a text nor a list"),
        ({"size": [2, 2.0], "counts": [4]}, "the size of its RLE is [2, 2.0]"),
        ({"size": [2, 2]}, "the counts of its RLE are neither a text nor a list of whole numbers"),
        ({"size": [2, 2], "counts": [5, -1]}, "neither a text nor a list of whole numbers of at least 0"),
        ({"size": [2, 2], "counts": [3, 2]}, "cover 5 pixels, and its size has 2 x 2 = 4"),
        ({"size": [2, 2], "counts": []}, "cover 0 pixels"),
        ({"size": [2, 2], "counts": ""}, "no text that pycocotools writes"),
        ({"size": [2, 2], "counts": "4o"}, "no text that pycocotools writes"),  # ends inside of a number
        ({"size": [2, 2], "counts": "~4"}, "no text that pycocotools writes"),
        ({"size": [2, 2], "counts": "ooooooooo0"}, "no text that pycocotools writes"),  # longer than 32 bits
        ({"size": [2, 2], "counts": "8L"}, "cover"),  # a run of -4 behind one of 8
    ],
)
def test_refusals(segmentation: dict[str, Any], message: str) -> None:
    with pytest.raises(UnusableLabelError, match=re.escape(message)):
        read_run_lengths(segmentation)
