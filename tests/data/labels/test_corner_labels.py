"""Corners as labels: what stays on a canvas by shapely, targets by hand, and the whole way of a sample on pixels."""

from __future__ import annotations

import math
from dataclasses import replace

import cv2
import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lucid_yolo.data.collate import collate
from lucid_yolo.data.dataset import TrainDataset
from lucid_yolo.data.geometry import linear_part
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.corners import CornerLabels
from lucid_yolo.data.objects import Objects
from lucid_yolo.data.sample import learnable
from lucid_yolo.data.source import PictureSource
from lucid_yolo.data.transforms import Transforms
from lucid_yolo.ops.letterbox import PAD_VALUE
from lucid_yolo.ops.rotated_np import corners, envelopes, from_corners
from tests.data.splits import make_config, make_index
from tests.ops.rotated_boxes import Rotated, polygon, rotated_boxes, vertices

SIZE = 40


def labels_of(*boxes: Rotated) -> CornerLabels:
    return CornerLabels(np.array([vertices(box) for box in boxes]).reshape(-1, 4, 2))


@given(st.lists(rotated_boxes, max_size=8))
def test_an_object_stays_by_its_visible_share_and_its_own_sides(boxes: list[Rotated]) -> None:
    found, keep, same = labels_of(*boxes).settle(np.zeros((len(boxes), 4)), SIZE)
    assert len(found) == len(keep) == len(same) == len(boxes)
    canvas = shapely.box(0, 0, SIZE, SIZE)
    for box, envelope, stays in zip(boxes, found, keep, strict=True):
        whole = polygon(box)
        np.testing.assert_allclose(envelope, whole.bounds, atol=1e-6)  # not clipped
        share, side = whole.intersection(canvas).area / whole.area, min(box[2:4])
        if abs(share - 0.1) > 1e-6 and abs(side - 2) > 1e-6:
            assert stays == (share > 0.1 and side > 2)


def test_the_share_is_of_the_rotated_box_and_not_of_its_envelope() -> None:
    # A square on its corner at the canvas's edge: of its area 1/8 is seen, of its envelope 1/4.
    diamond: Rotated = (-5.0, 20.0, 20 / math.sqrt(2), 20 / math.sqrt(2), math.pi / 4)
    envelope, keep, _ = labels_of(diamond).settle(np.zeros((1, 4)), SIZE)
    np.testing.assert_allclose(envelope, [[-15, 10, 5, 30]])
    assert keep.tolist() == [True]
    further = (-6.0, *diamond[1:])  # 0.08 of its area, 0.2 of its envelope
    assert labels_of(further).settle(np.zeros((1, 4)), SIZE)[1].tolist() == [False]


def test_targets_are_canonical_and_not_clipped() -> None:
    rows = labels_of((50.0, 3.0, 4.0, 10.0, 0.3), (8.0, 8.0, 6.0, 6.0, math.pi / 2)).target_rows(SIZE)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, [[50, 3, 10, 4, 0.3 + math.pi / 2], [8, 8, 6, 6, 0]], atol=1e-5)
    assert labels_of().target_rows(SIZE).shape == (0, 5)


@given(rotated_boxes, st.permutations(range(4)))
def test_the_order_of_the_corners_says_nothing(box: Rotated, order: list[int]) -> None:
    labels = labels_of(box)
    other = CornerLabels(labels.corners[:, order])
    np.testing.assert_array_equal(other.target_rows(SIZE), labels.target_rows(SIZE))
    nowhere = np.zeros((1, 4))
    for mine, its in zip(labels.settle(nowhere, SIZE)[:2], other.settle(nowhere, SIZE)[:2], strict=True):
        np.testing.assert_array_equal(mine, its)


def test_a_shear_gives_the_rectangle_of_least_area() -> None:
    square = labels_of((20.0, 20.0, 10.0, 10.0, 0.0))
    sheared = square.moved(square.points() @ linear_part(degrees=0, scale=1, shear_x=20, shear_y=0).T, mirrored=False)
    row = sheared.target_rows(SIZE)[0]
    hull = shapely.MultiPoint(sheared.corners[0]).minimum_rotated_rectangle
    assert float(row[2] * row[3]) == pytest.approx(hull.area, rel=1e-5)
    assert hull.area > 100 * 1.1


def test_take_join_and_move() -> None:
    first, second = labels_of((1, 1, 4, 2, 0), (9, 9, 4, 2, 0)), labels_of((5, 5, 4, 2, 1))
    joined = first.joined([second, first])
    assert len(joined) == 5
    np.testing.assert_array_equal(
        joined.take(np.array([2, 0])).corners, np.stack([second.corners[0], first.corners[0]])
    )
    moved = joined.moved(joined.points() + np.array([3, 0]), mirrored=True)
    np.testing.assert_array_equal(moved.corners, joined.corners + np.array([3, 0]))
    assert len(joined.take(np.zeros(0, np.int64))) == 0


# whole samples


class Polygons:
    """An image source that draws the corners of an index in white on black."""

    def __init__(self, index: SplitIndex) -> None:
        self._index = index

    def __call__(self, image: int) -> NDArray[np.uint8]:
        width, height = self._index.sizes[image].tolist()
        picture = np.zeros((height, width, 3), np.uint8)
        labels = self._index.labels
        assert isinstance(labels, CornerLabels)
        for quadrilateral in labels.corners[self._index.rows(image)]:
            cv2.fillConvexPoly(picture, np.rint(quadrilateral * 256 - 128).astype(np.int32), (255,) * 3, shift=8)
        return picture


def drawn_index(count: int) -> SplitIndex:
    """One object a picture, some of them partly outside of it."""
    generator = np.random.default_rng(1)
    sizes = [tuple(int(v) for v in generator.integers(80, 200, 2)) for _ in range(count)]
    boxes = np.array([[w * generator.uniform(0, 1), h / 2, 50, 24, generator.uniform(0, 3)] for w, h in sizes])
    quadrilaterals = corners(boxes)
    limits = np.array(sizes)[:, [0, 1, 0, 1]]
    index = make_index(sizes, [[box] for box in envelopes(boxes).clip(0, limits).tolist()])
    return replace(index, labels=CornerLabels(quadrilaterals))


def test_rotated_targets_of_whole_samples_lie_on_white() -> None:
    index = drawn_index(16)
    config = make_config(
        image_size=160, mosaic=0.0, degrees=90.0, scale=0.3, flip_ud=0.5, hsv_h=0.0, hsv_s=0.0, hsv_v=0.0
    )
    source = PictureSource(index, config, Polygons(index))
    dataset = TrainDataset(index, config, seed=3, max_epochs=100, pictures=source)
    samples = dataset.__getitems__([(0, i) for i in range(16)])
    batch = collate(samples, rows=32)
    rotated = batch.targets.rotated
    assert rotated is not None
    assert rotated.shape == (32, 5)
    assert (rotated[~batch.targets.valid] == 0).all()
    assert int(batch.targets.valid.sum()) > 12
    outside = 0
    for image, row, box in zip(batch.targets.image_index, rotated.numpy(), batch.targets.boxes, strict=True):
        if row[2] == 0:
            continue
        outside += bool((box < 0).any() or (box > 160).any())
        np.testing.assert_allclose(box, envelopes(row), atol=1e-3)
        inner, shape = corners(row - [0, 0, 4, 4, 0]), np.zeros((160, 160), np.uint8)  # the edges are interpolated
        cv2.fillConvexPoly(shape, np.rint(inner * 256 - 128).astype(np.int32), (1,), shift=8)
        pixels = batch.images[image].numpy()[shape > 0].min(axis=1)
        beyond = pixels == PAD_VALUE  # a part may lie beyond its picture
        assert (pixels[~beyond] > 200).mean() > 0.95
        assert (~beyond).any()
    assert outside


def test_crowds_leave_with_their_corners() -> None:
    index = replace(drawn_index(4), crowd=np.array([True, False, True, False]))
    kept = learnable(index).labels
    assert index.labels is not None
    assert kept is not None
    np.testing.assert_array_equal(kept.points(), index.labels.take(np.array([1, 3])).points())


def test_albumentations_moves_corners_beyond_the_canvas_and_drops_what_left() -> None:
    labels = labels_of((30.0, 20.0, 24.0, 8.0, 0.5), (8.0, 20.0, 12.0, 6.0, 0.2))
    image = np.zeros((SIZE, SIZE, 3), np.uint8)
    objects = Objects(envelopes(from_corners(labels.corners)).astype(np.float32), np.array([1, 2]), labels)
    shift = {"_target_": "albumentations.Affine", "translate_px": {"x": 8, "y": 0}, "p": 1.0}
    _, found = Transforms([shift])(image, objects, seed=0)
    assert found.labels is not None
    np.testing.assert_allclose(found.labels.target_rows(SIZE), [[38, 20, 24, 8, 0.5], [16, 20, 12, 6, 0.2]], atol=1e-4)
    assert found.boxes[0, 2] > SIZE
    away = {**shift, "translate_px": {"x": -22, "y": 0}}
    _, found = Transforms([away])(image, objects, seed=0)
    assert found.classes.tolist() == [1]
    assert found.labels is not None
    np.testing.assert_allclose(found.labels.target_rows(SIZE), [[8, 20, 24, 8, 0.5]], atol=1e-4)
