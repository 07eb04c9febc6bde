"""Outlines of masks: filled again they give the mask."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from lucid_yolo.ops.contours import Ring, outline
from lucid_yolo.ops.rasters import fill_rings


def refilled(rings: list[Ring], shape: tuple[int, int]) -> NDArray[np.bool_]:
    grid = np.zeros((max(shape), max(shape)), np.bool_)
    points = np.concatenate([np.zeros((0, 2)), *(ring.points for ring in rings)])
    offsets = np.cumsum([0, *(len(ring.points) for ring in rings)])
    for ring, window in zip(rings, fill_rings(points, offsets, max(shape)), strict=True):
        height, width = window.inside.shape
        grid[window.top : window.top + height, window.left : window.left + width][window.inside] = not ring.hole
    return grid[: shape[0], : shape[1]]


def blobs(seed: int) -> NDArray[np.bool_]:
    """Smooth random shapes with holes and islands."""
    noise = np.random.default_rng(seed).standard_normal((120, 160))
    smooth: NDArray[np.float64] = cv2.GaussianBlur(noise, (0, 0), 6)
    return smooth > np.quantile(smooth, 0.3)


@pytest.mark.parametrize("seed", range(4))
def test_blobs_with_holes_and_islands_come_back(seed: int) -> None:
    mask = blobs(seed)
    rings = outline(mask)
    assert any(ring.hole for ring in rings)
    again = refilled(rings, mask.shape)
    assert (again & mask).sum() / (again | mask).sum() > 0.98
    assert again.sum() == pytest.approx(mask.sum(), rel=0.01)
    assert sum(len(ring.points) for ring in rings) < 0.4 * np.count_nonzero(mask ^ cv2.erode(mask.view(np.uint8), None))


@settings(deadline=None, max_examples=60)
@given(arrays(np.bool_, (7, 9)))
def test_no_pixel_is_more_than_its_half_away(mask: NDArray[np.bool_]) -> None:
    """What changes of any mask, however ragged, touches its edges."""
    changed = refilled(outline(mask), mask.shape) ^ mask
    padded = np.pad(mask, 1, mode="constant").astype(np.uint8)
    inner = (cv2.erode(padded, np.ones((3, 3))) == cv2.dilate(padded, np.ones((3, 3))))[1:-1, 1:-1]
    assert not (changed & inner).any()


def test_a_rectangle_has_its_four_corners() -> None:
    mask = np.zeros((20, 30), np.bool_)
    mask[4:9, 6:20] = True
    (ring,) = outline(mask)
    assert not ring.hole
    assert sorted(map(tuple, ring.points.tolist())) == [(6, 4), (6, 9), (20, 4), (20, 9)]


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (4, 1)])
def test_thin_masks_keep_their_width(shape: tuple[int, int]) -> None:
    mask = np.zeros((12, 12), np.bool_)
    mask[3 : 3 + shape[0], 7 : 7 + shape[1]] = True
    np.testing.assert_array_equal(refilled(outline(mask), mask.shape), mask)


def test_an_island_in_a_hole_comes_after_the_hole_around_it() -> None:
    mask = np.zeros((40, 40), np.bool_)
    mask[2:38, 2:38], mask[8:32, 8:32], mask[15:25, 15:25] = True, False, True
    rings = outline(mask)
    assert [ring.hole for ring in rings] == [False, True, False]
    np.testing.assert_array_equal(refilled(rings, mask.shape), mask)


def test_pixels_that_touch_at_a_corner_are_one_piece() -> None:
    mask = np.zeros((12, 12), np.bool_)
    mask[2:5, 2:5], mask[5:9, 5:9] = True, True
    rings = outline(mask)
    assert len(rings) == 1
    np.testing.assert_array_equal(refilled(rings, mask.shape), mask)


def test_an_empty_mask_has_none() -> None:
    assert outline(np.zeros((5, 6), np.bool_)) == []
