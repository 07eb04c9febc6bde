"""Outlines: what is picked, joined and moved, and the masks that come of them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

from lucid_yolo.config.errors import DataError
from lucid_yolo.config.schema import DataConfig
from lucid_yolo.data.labels.base import LabelKind, empty_of
from lucid_yolo.data.labels.polygons import Outline, PolygonLabels
from lucid_yolo.data.labels.runs import Run
from lucid_yolo.data.readers import read_split

SQUARE = [[8.0, 8.0], [40.0, 8.0], [40.0, 40.0], [8.0, 40.0]]
INNER = [[16.0, 16.0], [32.0, 16.0], [32.0, 32.0], [16.0, 32.0]]
ISLAND = [[20.0, 20.0], [28.0, 20.0], [28.0, 28.0], [20.0, 28.0]]
TRIANGLE = [[40.0, 50.0], [60.0, 50.0], [50.0, 62.0]]


def outline(*rings: list[list[float]], holes: tuple[int, ...] = (), run: Run | None = None) -> Outline:
    points = np.concatenate([np.array(ring) for ring in rings])
    return Outline(points, tuple(len(ring) for ring in rings), tuple(i in holes for i in range(len(rings))), run)


def unpacked(labels: PolygonLabels, image_size: int) -> NDArray[np.bool_]:
    rows = labels.target_rows(image_size)
    assert rows.dtype == np.uint8
    assert rows.shape == (len(labels), image_size // 4, image_size // 32)
    return np.unpackbits(rows, axis=-1).astype(np.bool_)


def block(*corners: tuple[int, int, int, int], side: int = 16) -> NDArray[np.bool_]:
    """Cells of rectangles (left, top, right, bottom), each one flipped."""
    grid = np.zeros((side, side), np.bool_)
    for left, top, right, bottom in corners:
        grid[top:bottom, left:right] ^= True
    return grid


LABELS = PolygonLabels.of(
    [
        outline(SQUARE),
        outline(SQUARE, INNER, ISLAND, holes=(1,)),
        outline(TRIANGLE, ISLAND, run=Run(3, 4, b"abc")),
        outline(INNER, run=Run(5, 6, b"defg")),
    ]
)


def test_masks_by_hand() -> None:
    square, framed, _, inner = unpacked(LABELS, 64)
    np.testing.assert_array_equal(square, block((2, 2, 10, 10)))
    np.testing.assert_array_equal(framed, block((2, 2, 10, 10), (4, 4, 8, 8), (5, 5, 7, 7)))
    np.testing.assert_array_equal(inner, block((4, 4, 8, 8)))


def test_parts_that_overlap_are_joined() -> None:
    (joined,) = unpacked(PolygonLabels.of([outline(SQUARE, INNER)]), 64)
    np.testing.assert_array_equal(joined, block((2, 2, 10, 10)))


def test_the_leftmost_cell_is_the_highest_bit() -> None:
    labels = PolygonLabels.of([outline([[0.0, 0.0], [4.0, 0.0], [4.0, 4.0], [0.0, 4.0]])])
    rows = labels.target_rows(32)
    assert rows[0, 0, 0] == 0b10000000
    assert rows.sum() == 0b10000000


def test_what_leaves_the_canvas_is_cut() -> None:
    moved = LABELS.moved(LABELS.points() - (24.0, 24.0), mirrored=False)
    np.testing.assert_array_equal(unpacked(moved, 32)[0], block((0, 0, 4, 4), side=8))


def test_picked_and_joined_objects_keep_what_is_theirs() -> None:
    masks = unpacked(LABELS, 64)
    rows = np.array([3, 1, 1])
    picked = LABELS.take(rows)
    np.testing.assert_array_equal(unpacked(picked, 64), masks[rows])
    assert [picked.runs[i] for i in range(3)] == [Run(5, 6, b"defg"), None, None]
    joined = empty_of(LABELS).joined([picked, empty_of(LABELS), LABELS])
    np.testing.assert_array_equal(unpacked(joined, 64), masks[[3, 1, 1, 0, 1, 2, 3]])
    assert [joined.runs[i] for i in (0, 5, 6)] == [Run(5, 6, b"defg"), Run(3, 4, b"abc"), Run(5, 6, b"defg")]
    np.testing.assert_array_equal(joined.envelopes()[2], [8, 8, 40, 40])


def test_no_object_has_no_mask() -> None:
    nothing = empty_of(LABELS)
    assert len(nothing) == 0
    assert unpacked(nothing, 64).shape == (0, 16, 16)
    boxes, keep, _ = nothing.settle(np.zeros((0, 4)), 64)
    assert boxes.shape == (0, 4)
    assert keep.shape == (0,)


def test_moved_labels_forget_the_masks_of_their_picture() -> None:
    moved = LABELS.moved(LABELS.points() + 1.0, mirrored=True)
    assert [moved.runs[i] for i in range(4)] == [None] * 4
    assert len(moved.runs) == 4


def test_a_turned_object_gets_a_tight_box() -> None:
    """A diamond in its box, turned by 45 degrees, is an upright square of half the area; the box around the turned
    corners has twice the area."""
    diamond = np.array([[32.0, 16.0], [48.0, 32.0], [32.0, 48.0], [16.0, 32.0]])
    turn = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2)
    labels = PolygonLabels.of([outline(((diamond - 32.0) @ turn.T + 32.0).tolist())])
    corners = np.array([[32 - 16 * np.sqrt(2)] * 2 + [32 + 16 * np.sqrt(2)] * 2])
    boxes, keep, _ = labels.settle(corners, 64)
    half = 8 * np.sqrt(2)
    np.testing.assert_allclose(boxes, [[32 - half, 32 - half, 32 + half, 32 + half]])
    assert keep.tolist() == [True]


def test_boxes_are_clipped_and_slivers_go() -> None:
    labels = PolygonLabels.of([outline(SQUARE), outline(SQUARE), outline(SQUARE)])
    offsets = np.array([[0.0, 0.0], [-10.0, 0.0], [-39.0, 0.0]])
    moved = labels.moved(labels.points() + offsets.repeat(4, axis=0), mirrored=False)
    boxes, keep, _ = moved.settle(np.array([8.0, 8.0, 40.0, 40.0]) + np.tile(offsets, 2), 64)
    np.testing.assert_allclose(boxes, [[8, 8, 40, 40], [0, 8, 30, 40], [0, 8, 1, 40]])
    assert keep.tolist() == [True, True, False]


def test_what_is_cut_gets_the_box_of_what_is_left() -> None:
    """The tip of a triangle reaches into the canvas; of another one only the box does."""
    tip, outside = [[-40.0, 0.0], [10.0, 30.0], [-40.0, 60.0]], [[-40.0, 20.0], [20.0, -40.0], [-40.0, -40.0]]
    labels = PolygonLabels.of([outline(tip), outline(outside), outline(SQUARE)])
    boxes, keep, _ = labels.settle(labels.envelopes(), 64)
    np.testing.assert_allclose(boxes[[0, 2]], [[0, 24, 10, 36], [8, 8, 40, 40]])
    assert keep.tolist() == [True, False, True]
    boxes, keep, _ = labels.settle(np.array([[-10.0, 20.0, 10.0, 40.0], [-40, -40, 20, 20], [8, 8, 40, 40]]), 64)
    np.testing.assert_allclose(boxes[0], [0, 24, 10, 36])
    assert keep.tolist() == [True, False, True]


def test_outlines_beyond_their_box_do_not_widen_it_and_those_elsewhere_leave_it() -> None:
    labels = PolygonLabels.of([outline(SQUARE), outline(SQUARE)])
    boxes, keep, _ = labels.settle(np.array([[10.0, 0.0, 64.0, 30.0], [50.0, 50.0, 60.0, 60.0]]), 64)
    np.testing.assert_allclose(boxes, [[10, 8, 40, 30], [50, 50, 60, 60]])
    assert keep.all()


def test_original_masks_are_handed_out_unchanged_and_have_the_size_of_the_picture() -> None:
    assert LABELS.coco_rle(3, 5, 6) == {"size": [5, 6], "counts": b"defg"}
    with pytest.raises(DataError, match="a mask of 6x5 pixels belongs to a picture of 5x6"):
        LABELS.coco_rle(3, 6, 5)


@pytest.mark.parametrize("split", ["train", "val"])
def test_real_outlines_equal_pycocotools(test_data, split: str) -> None:
    index = read_split(DataConfig(format="coco", root=str(test_data / "coco_open")), split, LabelKind.POLYGONS)
    assert isinstance(index.labels, PolygonLabels)
    truth = COCO(str(test_data / "coco_open" / "annotations" / f"instances_{split}2017.json"))
    overlaps, pixels = [], []
    for i, image_id in enumerate(index.image_ids.tolist()):
        width, height = index.sizes[i].tolist()
        side = -(-max(width, height) // 8) * 32
        rows = np.arange(index.rows(i).start, index.rows(i).stop)
        here = index.labels.take(rows)
        # At four times the size the cells of the masks are the pixels of the picture.
        masks = unpacked(here.moved(here.points() * 4, mirrored=False), side)[:, :height, :width]
        annotations = truth.loadAnns(truth.getAnnIds(image_id))
        for row, mask, annotation in zip(rows.tolist(), masks, annotations, strict=True):
            expected = truth.annToRLE(annotation)
            assert index.labels.coco_rle(row, height, width) == expected
            other = coco_mask.decode(expected).astype(np.bool_)
            overlaps.append((mask & other).sum() / max((mask | other).sum(), 1))
            pixels.append(other.sum())
    found, areas = np.array(overlaps), np.array(pixels)
    assert len(found) == len(index.boxes)
    assert (found[areas > 200] > 0.95).all()
    assert (found[areas > 2000] > 0.98).all()
    assert np.median(found) > 0.99
