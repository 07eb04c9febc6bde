"""The pictures of a run directory."""

from __future__ import annotations

from functools import partial

import cv2
import numpy as np
import torch

from lucid_yolo.config.schema import ExifOrientation
from lucid_yolo.data.batch import Batch, Targets
from lucid_yolo.data.image import read_image
from lucid_yolo.eval.coco import evaluate_boxes
from lucid_yolo.ops.detections import Detections
from lucid_yolo.viz.report import (
    write_curves,
    write_label_picture,
    write_training_picture,
    write_validation_pictures,
)


def detections(index):
    """The first image's objects, nothing elsewhere."""
    nothing = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64))
    return (Detections(index.boxes[:2], np.array([0.9, 0.8], np.float32), index.classes[:2]), nothing, nothing)


def test_validation_pictures(index, tmp_path):
    found = detections(index)
    metrics = evaluate_boxes(index, found)
    paths = write_validation_pictures(
        tmp_path / "out",
        index,
        found,
        metrics,
        class_names=index.class_names,
        read=partial(read_image, exif=ExifOrientation.APPLY),
    )
    names = ["val_predictions.jpg", "precision_recall.png", "confidence.png", "confusion.png"]
    assert [path.name for path in paths] == names
    sizes = [cv2.imread(str(path)).shape for path in paths]
    assert all(min(size[:2]) > 300 for size in sizes)
    assert sizes[0][1] > sizes[0][0]  # two pairs a row


def test_other_pictures(index, tmp_path):
    targets = Targets(
        torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), torch.zeros(1, 4), torch.tensor([False])
    )
    batch = Batch(torch.zeros(1, 64, 64, 3, dtype=torch.uint8), targets, torch.ones(1, 3), torch.tensor([2]))
    (tmp_path / "metrics.csv").write_text("epoch,step,train/total,lr,val/box_ap\n0,1,3.0,0.1,\n0,1,,,0.2\n")
    paths = [
        write_label_picture(tmp_path / "out", index),
        write_training_picture(tmp_path / "out", index, batch, name="train_batch_1"),
        write_curves(tmp_path / "out", tmp_path / "metrics.csv"),
    ]
    assert [path.name for path in paths] == ["labels.png", "train_batch_1.jpg", "curves.png"]
    assert all(min(cv2.imread(str(path)).shape[:2]) > 300 for path in paths)
