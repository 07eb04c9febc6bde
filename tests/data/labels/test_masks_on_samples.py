"""Masks through the whole pipeline: they lie on what was drawn, however mosaic, warp, flips and mixing move it."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from lucid_yolo.data.collate import collate
from lucid_yolo.data.dataset import TrainDataset
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.polygons import Outline, PolygonLabels
from lucid_yolo.data.source import PictureSource
from tests.data.splits import PLAIN, make_config, make_index

SIZE = 160


def stars(count: int) -> SplitIndex:
    """One five-pointed star a picture: no box, and no turned box, has its shape."""
    generator = np.random.default_rng(1)
    sizes, boxes, outlines = [], [], []
    for _ in range(count):
        width, height = (int(side) for side in generator.integers(120, 200, 2))
        angles = generator.random() * 6 + np.arange(10) * np.pi / 5
        radii = np.where(np.arange(10) % 2, 18.0, 40.0)
        center = np.array([width, height]) * (0.4 + 0.2 * generator.random(2))
        points = center + radii[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        sizes.append((width, height))
        boxes.append([[*points.min(axis=0), *points.max(axis=0)]])
        outlines.append(Outline(points, (10,), (False,)))
    return replace(make_index(sizes, boxes), labels=PolygonLabels.of(outlines))


class Drawn:
    """An image source that draws the outlines of an index in white on black."""

    def __init__(self, index: SplitIndex) -> None:
        self._index = index

    def __call__(self, image: int) -> NDArray[np.uint8]:
        width, height = self._index.sizes[image]
        picture = np.zeros((height * 4, width * 4, 3), np.uint8)
        labels = self._index.labels.take(np.array([image]))
        cv2.fillPoly(picture, [np.rint(labels.points() * 4 - 0.5).astype(np.int32)], (255, 255, 255))
        return cv2.resize(picture, (int(width), int(height)), interpolation=cv2.INTER_AREA)


MOVING = {"mosaic": 1.0, "close_mosaic": 0, "scale": 0.2, "translate": 0.1, "degrees": 180.0, "shear": 5.0}
FLIPS = [{"_target_": "albumentations.HorizontalFlip", "p": 0.5}, {"_target_": "albumentations.Rotate", "p": 0.7}]


@pytest.mark.parametrize(
    "augment",
    [PLAIN, {**PLAIN, "flip_lr": 0.5, "flip_ud": 0.5}, {**PLAIN, **MOVING}, {**PLAIN, "transforms": FLIPS}],
)
def test_masks_lie_on_what_was_drawn(augment) -> None:
    index = stars(8)
    config = make_config(image_size=SIZE, **augment)
    dataset = TrainDataset(index, config, seed=5, max_epochs=100, pictures=PictureSource(index, config, Drawn(index)))
    samples = dataset.__getitems__([(0, i) for i in range(8)])
    targets = collate(samples, rows=16).targets
    assert targets.masks is not None
    assert targets.masks.shape == (len(targets.valid), SIZE // 4, SIZE // 32)
    assert targets.boxes[targets.valid].numpy() == pytest.approx(
        np.concatenate([sample.objects.boxes for sample in samples])
    )
    masks = np.unpackbits(targets.masks.numpy(), axis=-1).astype(bool)
    assert not masks[~targets.valid.numpy()].any()
    agreed = []
    for i, sample in enumerate(samples):
        mine = (targets.image_index == i) & targets.valid
        shades = cv2.resize(sample.image[..., 0], (SIZE // 4, SIZE // 4), interpolation=cv2.INTER_AREA)
        sure = (shades < 40) | (shades > 215)
        for box, mask in zip(sample.objects.boxes / 4, masks[mine.numpy()], strict=True):
            rows, columns = np.nonzero(mask)
            found = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
            np.testing.assert_allclose(found, box, atol=3.0)  # tips are thinner than a cell
            left, top, right, bottom = found
            here = sure[top:bottom, left:right]
            white = shades[top:bottom, left:right] > 128
            agreed.append((mask[top:bottom, left:right] == white)[here].mean())
    assert len(agreed) >= 6
    assert min(agreed) > 0.99


def test_mixed_pictures_keep_the_masks_of_both() -> None:
    index = stars(6)
    config = make_config(image_size=SIZE, **{**PLAIN, "mixup": 1.0, "close_mosaic": 0})
    dataset = TrainDataset(index, config, seed=2, max_epochs=100, pictures=PictureSource(index, config, Drawn(index)))
    (sample,) = dataset.__getitems__([(0, 0)])
    assert len(sample.objects) == len(sample.objects.labels) == 2
    assert all(rows.any() for rows in sample.objects.labels.target_rows(SIZE))
