"""Key points that move with the pixels: colours tell whether each still lies where its name says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucid_yolo.config.errors import DataError
from lucid_yolo.data.collate import collate
from lucid_yolo.data.dataset import TrainDataset
from lucid_yolo.data.labels.keypoints import KeypointLabels
from lucid_yolo.data.objects import Objects
from lucid_yolo.data.sample import Sample
from lucid_yolo.data.source import PictureSource
from lucid_yolo.data.transforms import Transforms
from tests.data.splits import make_config, make_index

FLIP = (0, 2, 1)  # middle, left, right
COLOURS = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255]], np.uint8)
RADIUS = 5  # of the dot around a point


def labels(*objects: list[tuple[float, float, float]], flip: tuple[int, ...] | None = FLIP) -> KeypointLabels:
    return KeypointLabels(np.array(objects, np.float32).reshape(len(objects), -1, 3), flip)


class Dots:
    """An image source that draws a dot in the colour of its name at each labelled point."""

    def __init__(self, index):
        self._index = index

    def __call__(self, image):
        width, height = self._index.sizes[image]
        picture = np.zeros((height, width, 3), np.uint8)
        rows, columns = np.mgrid[:height, :width] + 0.5
        for points in self._index.labels.values[self._index.rows(image)]:
            for (x, y, visibility), colour in zip(points, COLOURS, strict=True):
                if visibility:
                    picture[np.hypot(columns - x, rows - y) <= RADIUS] = colour
        return picture


def dotted_index(count: int, seed: int = 0):
    """One object a picture, whose three points are apart from each other; every fifth lacks its second point."""
    generator = np.random.default_rng(seed)
    sizes = [tuple(int(v) for v in generator.integers(90, 160, 2)) for _ in range(count)]
    values, boxes = [], []
    for i, (width, height) in enumerate(sizes):
        y = generator.uniform(10, height - 10, 3)
        x = np.sort(generator.uniform(10, width / 3 - 10, 3)) + np.arange(3) * width / 3
        x = x[list(generator.permutation(3))]
        visibility = np.array([2, 0 if i % 5 == 0 else 1, 2])
        values.append(np.stack([x, y, visibility], axis=1))
        boxes.append([[0, 0, width, height]])
    index = make_index(sizes, boxes)
    return replace(index, labels=KeypointLabels(np.array(values, np.float32), FLIP))


@pytest.mark.parametrize("augment", [{"flip_lr": 1.0}, {"flip_ud": 1.0}, {"flip_lr": 1.0, "flip_ud": 1.0}, {}])
def test_points_lie_on_their_dots_and_change_names_in_mirrored_pictures(augment):
    """Whatever the other changes are: mosaic, scale, shift, rotation, shear."""
    index = dotted_index(20)
    settings = {"flip_lr": 0.0, "degrees": 30.0, "shear": 5.0, "hsv_h": 0, "hsv_s": 0, "hsv_v": 0, "mosaic": 0.5}
    config = make_config(image_size=160, **{**settings, **augment})
    mirrored = len(augment) == 1
    dataset = TrainDataset(index, config, seed=3, max_epochs=100, pictures=PictureSource(index, config, Dots(index)))
    seen = np.zeros(3, int)
    for sample in dataset.__getitems__([(0, i) for i in range(20)]):
        for x, y, learned in sample.objects.labels.target_rows(160).reshape(-1, 3):
            assert learned in (0, 1)
            assert learned or (x, y) == (0, 0)
        for points in sample.objects.labels.values:
            for name, (x, y, visibility) in enumerate(points):
                if visibility and 2 < x < 158 and 2 < y < 158:
                    colour = FLIP[name] if mirrored else name
                    assert sample.image[int(y), int(x)].argmax() == colour
                    assert sample.image[int(y), int(x)].max() > 100
                    seen[name] += 1
    assert (seen > 5).all()


def test_points_outside_of_the_canvas_are_forgotten_and_their_object_stays():
    given_labels = labels([(5, 5, 2), (-0.1, 5, 2), (5, 64.1, 1)], [(64, 0, 1), (0, 64, 2), (0, 0, 0)])
    boxes = np.array([[-10.0, 0, 30, 40], [0, 0, 64, 64]])
    settled, keep, there = given_labels.settle(boxes, 64)
    assert settled.tolist() == [[0, 0, 30, 40], [0, 0, 64, 64]]
    assert keep.all()
    assert there.values.tolist() == [[[5, 5, 2], [0, 0, 0], [0, 0, 0]], [[64, 0, 1], [0, 64, 2], [0, 0, 0]]]
    assert there.target_rows(64).tolist() == [[[5, 5, 1], [0, 0, 0], [0, 0, 0]], [[64, 0, 1], [0, 64, 1], [0, 0, 0]]]
    assert there.target_rows(64).dtype == np.float32
    _, keep, _ = given_labels.settle(boxes - 63, 64)
    assert keep.tolist() == [False, False]  # too little is left of either box


@given(st.permutations(range(6)), st.integers(0, 2**31))
def test_mirroring_twice_is_no_change(order, seed):
    flip = np.arange(6)
    flip[order[:2]], flip[order[2:4]] = flip[order[1::-1]], flip[order[3:1:-1]]  # two pairs
    values = np.random.default_rng(seed).uniform(0, 64, (4, 6, 3)).astype(np.float32)
    before = KeypointLabels(values, tuple(flip.tolist()))
    after = before
    for _ in range(2):
        after = after.moved(64 - after.points(), mirrored=True)
    np.testing.assert_allclose(after.values, before.values, atol=1e-4)
    once = before.moved(before.points(), mirrored=True)
    np.testing.assert_array_equal(once.values[:, flip], before.values)


def test_without_a_permutation_mirroring_is_refused_and_moving_is_not():
    unknown = labels([(1, 2, 2)] * 3, flip=None)
    assert unknown.moved(unknown.points() + 1, mirrored=False).values[0, 0].tolist() == [2, 3, 2]
    with pytest.raises(DataError, match=r"mirrored.*task\.keypoints\.flip=\[\.\.\.\].*3 points"):
        unknown.moved(unknown.points(), mirrored=True)


def test_listed_transforms_mirror_points_too():
    image = np.zeros((64, 64, 3), np.uint8)
    objects = Objects(
        np.array([[10, 10, 50, 50]], np.float32), np.array([4]), labels([(12, 20, 2), (15, 30, 1), (40, 35, 2)])
    )
    flip = {"_target_": "albumentations.HorizontalFlip", "p": 1.0}
    _, found = Transforms([flip])(image, objects, seed=0)
    np.testing.assert_allclose(found.labels.values, [[[52, 20, 2], [24, 35, 2], [49, 30, 1]]], atol=1e-4)
    shift = {"_target_": "albumentations.Affine", "translate_px": {"x": 30, "y": 0}, "p": 1.0}
    _, found = Transforms([shift])(image, objects, seed=0)
    np.testing.assert_allclose(found.labels.values, [[[42, 20, 2], [45, 30, 1], [0, 0, 0]]], atol=1e-4)


def test_rows_of_a_batch():
    def sample(index, *objects):
        chosen = labels(*objects) if objects else labels([(0, 0, 0)] * 3).take(np.zeros(0, np.int64))
        boxes = np.tile(np.float32([0, 0, 8, 8]), (len(objects), 1))
        content = Objects(boxes, np.zeros(len(objects), np.int64), chosen)
        return Sample(np.zeros((8, 8, 3), np.uint8), content, np.ones(3, np.float32), index)

    one, other = [(1, 2, 2), (3, 4, 0), (5, 6, 1)], [(7, 7, 1)] * 3
    targets = collate([sample(0, one), sample(1), sample(2, other)], rows=4).targets
    assert targets.keypoints.shape == (4, 3, 3)
    assert targets.keypoints[0].tolist() == [[1, 2, 1], [0, 0, 0], [5, 6, 1]]
    assert targets.keypoints[1].tolist() == [[7, 7, 1]] * 3
    assert not targets.keypoints[2:].any()
    assert collate([sample(0), sample(1)], rows=4).targets.keypoints.shape == (4, 3, 3)


def test_objects_are_picked_and_joined():
    both = labels([(1, 1, 2)] * 3).joined([labels([(2, 2, 1)] * 3, [(3, 3, 0)] * 3)])
    assert both.take(np.array([2, 0])).values[:, 0].tolist() == [[3, 3, 0], [1, 1, 2]]
    assert both.points().shape == (9, 2)
    assert both.flip == FLIP
