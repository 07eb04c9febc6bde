"""Packing samples, by hand."""

from __future__ import annotations

import numpy as np
import torch

from lucid_yolo.data.collate import ValItem, collate, collate_val
from lucid_yolo.data.objects import Objects
from lucid_yolo.data.sample import Sample
from lucid_yolo.ops.letterbox import letterbox_for


def sample(index: int, count: int) -> Sample:
    boxes = np.full((count, 4), index, np.float32) + np.arange(count, dtype=np.float32)[:, None]
    objects = Objects(boxes, np.arange(count))
    return Sample(np.full((8, 8, 3), index, np.uint8), objects, np.ones(3, np.float32), index)


def test_rows_by_hand():
    batch = collate([sample(5, 2), sample(9, 0), sample(7, 3)], rows=8)
    targets = batch.targets
    assert targets.image_index.tolist() == [0, 0, 2, 2, 2, 0, 0, 0]
    assert targets.classes.tolist() == [0, 1, 0, 1, 2, 0, 0, 0]
    assert targets.boxes[:, 0].tolist() == [5, 6, 7, 8, 9, 0, 0, 0]
    assert targets.valid.tolist() == [True] * 5 + [False] * 3
    assert batch.indices.tolist() == [5, 9, 7]
    assert batch.images.shape == (3, 8, 8, 3)
    assert batch.images[:, 0, 0, 0].tolist() == [5, 9, 7]
    assert batch.images_nchw().is_contiguous(memory_format=torch.channels_last)
    assert (batch.gains == 1).all()
    assert [t.dtype for t in (targets.image_index, targets.classes, targets.boxes, targets.valid)] == [
        torch.int64, torch.int64, torch.float32, torch.bool
    ]  # fmt: skip


def test_a_batch_with_more_objects_takes_the_next_bucket():
    assert len(collate([sample(0, 4), sample(1, 4)], rows=8).targets.valid) == 8
    assert len(collate([sample(0, 5), sample(1, 4)], rows=8).targets.valid) == 16
    assert len(collate([sample(0, 30), sample(1, 4)], rows=8).targets.valid) == 64


def test_a_batch_of_empty_pictures_is_all_padding():
    targets = collate([sample(0, 0), sample(1, 0)], rows=16).targets
    assert len(targets.valid) == 16
    assert not targets.valid.any()
    assert not targets.boxes.any()


def test_a_short_validation_batch_is_filled_and_marked():
    items = [ValItem(np.full((4, 4, 3), i, np.uint8), letterbox_for(10 + i, 10, 4), i) for i in (3, 4)]
    batch = collate_val(items, batch_size=4)
    assert batch.indices.tolist() == [3, 4, -1, -1]
    assert batch.images[:, 0, 0, 0].tolist() == [3, 4, 4, 4]
    assert [box.width for box in batch.letterboxes] == [13, 14, 14, 14]
    assert batch.image_size == 4
    assert batch.to("cpu").letterboxes == batch.letterboxes
