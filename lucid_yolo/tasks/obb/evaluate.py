"""From the labels and the detections of a split to the evaluation of rotated boxes."""

from __future__ import annotations

import numpy as np

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.corners import CornerLabels
from lucid_yolo.eval.columns import ImageDetections, per_image
from lucid_yolo.eval.metrics import DetectionMetrics
from lucid_yolo.eval.rotated import RotatedObjects, evaluate_rotated
from lucid_yolo.ops.detections import Detections, RotatedDetections


def evaluate_split(index: SplitIndex, detections: ImageDetections) -> DetectionMetrics:
    """Score the rotated detections of a split in the frame of the original pictures.

    Args:
        index: the split, read with corners; its crowds need not be found.
        detections: by position of the image, with ``rotated``.

    Raises:
        ValueError: detections that do not fit the split.
    """
    assert isinstance(index.labels, CornerLabels)
    boxes = index.labels.boxes()
    rows = [index.rows(image) for image in range(len(index))]
    objects = [RotatedObjects(boxes[r], index.classes[r], index.crowd[r]) for r in rows]
    found = dict(per_image(index, detections))
    rotated = [_rotated(found[image]) if image in found else _nothing() for image in range(len(index))]
    return evaluate_rotated(objects, rotated, num_classes=index.num_classes)


def _rotated(found: Detections) -> RotatedDetections:
    assert found.rotated is not None
    return RotatedDetections(found.rotated, found.scores, found.classes)


def _nothing() -> RotatedDetections:
    return RotatedDetections(np.zeros((0, 5), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64))
