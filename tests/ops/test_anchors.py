"""Anchor points against a Python loop."""

from __future__ import annotations

import pytest

from lucid_yolo.ops.anchors import make_anchors


def test_640_pixels_have_8400_anchors_in_level_and_row_order() -> None:
    anchors = make_anchors(640, (8, 16, 32))
    assert len(anchors) == 8400
    expected = [
        ((x + 0.5) * s, (y + 0.5) * s, s) for s in (8, 16, 32) for y in range(640 // s) for x in range(640 // s)
    ]
    assert [(*c, s) for c, s in zip(anchors.centers.tolist(), anchors.strides.tolist(), strict=True)] == expected


def test_corner_views() -> None:
    anchors = make_anchors(32, (16,))
    assert anchors.origins().tolist() == [[8, 8, 8, 8], [24, 8, 24, 8], [8, 24, 8, 24], [24, 24, 24, 24]]
    assert anchors.signed_strides().tolist() == [[-16, -16, 16, 16]] * 4


@pytest.mark.parametrize("size", [0, 100, -32])
def test_a_size_that_is_no_multiple_of_the_strides_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="positive multiple of each of the strides"):
        make_anchors(size, (8, 16, 32))
