"""The bucket of target rows."""

from __future__ import annotations

import numpy as np
import pytest

from lucid_yolo.data.dataset import TrainDataset
from lucid_yolo.data.loader import TrainLoader
from lucid_yolo.data.source import PictureSource
from lucid_yolo.data.statistics import next_bucket, target_rows
from tests.data.splits import PLAIN, make_config, make_index


@pytest.mark.parametrize(
    ("rows", "base", "bucket"), [(0, 16, 16), (16, 16, 16), (17, 16, 32), (100, 16, 128), (300, 64, 512)]
)
def test_next_bucket(rows, base, bucket):
    assert next_bucket(rows, base) == bucket


def dense_index(count: int, objects: int):
    boxes = [[[10 * k, 10, 10 * k + 8, 30] for k in range(objects)] for _ in range(count)]
    return make_index([(320, 320)] * count, boxes)


def test_without_mosaic_the_rows_are_counted():
    # 7 objects an image, nothing hidden: 8 images have 56 rows, and 9 have 63
    assert target_rows(dense_index(20, 7), make_config(image_size=320, batch_size=8, **PLAIN)) == 64
    assert target_rows(dense_index(20, 7), make_config(image_size=320, batch_size=10, **PLAIN)) == 128
    assert target_rows(dense_index(20, 0), make_config(batch_size=4)) == 16


def test_nearly_all_real_batches_fit_and_the_bucket_is_not_wasteful():
    generator = np.random.default_rng(1)
    boxes = []
    for _ in range(60):
        corners = generator.integers(0, 250, (int(generator.geometric(0.1)), 2))
        boxes.append(np.concatenate([corners, corners + generator.integers(10, 60, corners.shape)], axis=1).tolist())
    index = make_index([(320, 320)] * 60, boxes)
    config = make_config(image_size=64, batch_size=8)
    rows = target_rows(index, config)
    assert rows == target_rows(index, config)  # deterministic
    blank = np.zeros((320, 320, 3), np.uint8)
    dataset = TrainDataset(
        index, config, seed=5, max_epochs=100, pictures=PictureSource(index, config, lambda _: blank)
    )
    counts = np.array([len(s.objects) for e in range(8) for s in dataset.__getitems__([(e, i) for i in range(60)])])
    totals = generator.permuted(np.tile(counts, 20)).reshape(-1, 8).sum(axis=1)
    assert (totals <= rows).mean() > 0.99
    assert totals.max() > rows / 4


def test_the_loader_uses_it():
    index = dense_index(20, 7)
    config = make_config(image_size=320, batch_size=8)
    assert TrainLoader(index, config, seed=0, max_epochs=1, num_workers=0, pin_memory=False).rows == target_rows(
        index, config
    )
