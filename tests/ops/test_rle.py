"""Run lengths against pycocotools on whole masks."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools import mask as coco_mask

from lucid_yolo.ops.rle import Rle


def test_runs_by_hand() -> None:
    mask = np.array([[0, 1, 1], [1, 1, 0]], bool)  # columns: 0 1, 1 1, 1 0
    plain = coco_mask.frPyObjects({"size": [2, 3], "counts": [1, 4, 1]}, 2, 3)
    assert Rle.encode(mask) == Rle(2, 3, plain["counts"])
    assert np.array_equal(Rle.encode(mask).decode(), mask)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_part_is_compressed_as_the_whole_mask_is(data: st.DataObject) -> None:
    height, width = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    top, left = data.draw(st.integers(0, height)), data.draw(st.integers(0, width))
    bottom, right = data.draw(st.integers(top, height)), data.draw(st.integers(left, width))
    share = data.draw(st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    part = rng.random((bottom - top, right - left)) < share
    whole = np.zeros((height, width), np.uint8, order="F")
    whole[top:bottom, left:right] = part
    found = Rle.encode_part(part, left=left, top=top, height=height, width=width)
    assert found.counts == coco_mask.encode(whole)["counts"]
    assert np.array_equal(found.decode(), whole)
    assert found.decode().dtype == np.bool_


def test_a_mask_placed_in_a_larger_one() -> None:
    mask = np.array([[0, 1, 1], [1, 1, 0]], bool)
    whole = np.zeros((4, 5), bool)
    whole[2:4, 1:4] = mask
    assert Rle.encode(mask).placed(left=1, top=2, height=4, width=5) == Rle.encode(whole)


def test_json_has_text_that_pycocotools_reads_back() -> None:
    mask = np.random.default_rng(0).random((40, 60)) < 0.3
    written = json.loads(json.dumps(Rle.encode(mask).as_json()))
    assert np.array_equal(coco_mask.decode(written), mask)
