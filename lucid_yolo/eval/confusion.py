"""Which class is taken for which."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.eval.columns import ImageDetections, to_columns
from lucid_yolo.eval.matching import match_by_overlap, pairwise_coverage, pairwise_iou


def confusion_matrix(
    index: SplitIndex, detections: ImageDetections, *, confidence: float = 0.25, iou: float = 0.5
) -> NDArray[np.int64]:
    """Count pairs of object and detection by their classes.

    Pairs are made one to one in each image whatever their classes, the highest IoU first. An object without a detection
    is counted in the last column (missed), a detection without an object in the last row (background), unless it
    lies on a crowd of its class.

    Args:
        index: the split.
        detections: by position of the image, pixels of the original picture.
        confidence: least score of a detection that counts.
        iou: least IoU of a pair.

    Returns:
        (C + 1, C + 1) counts, row = class of the object, column = class of the detection.

    Raises:
        ValueError: detections that do not fit the split.
    """
    columns = to_columns(index, detections)
    keep = columns.scores >= confidence
    images, boxes, classes = columns.images[keep], columns.boxes[keep], columns.classes[keep]
    bounds = np.searchsorted(images, np.arange(len(index) + 1))
    matrix = np.zeros((index.num_classes + 1, index.num_classes + 1), np.int64)
    for image in range(len(index)):
        rows, found = index.rows(image), slice(bounds[image], bounds[image + 1])
        crowd, labels = index.crowd[rows], index.classes[rows]
        truth, truth_boxes = labels[~crowd], index.boxes[rows][~crowd]
        on_crowd = (pairwise_coverage(boxes[found], index.boxes[rows][crowd]) >= iou) & (
            classes[found][:, None] == labels[crowd][None, :]
        )
        count_pairs(
            matrix,
            pairwise_iou(boxes[found], truth_boxes),
            truth,
            classes[found],
            excused=on_crowd.any(axis=1),
            threshold=iou,
        )
    return matrix


def count_pairs(
    matrix: NDArray[np.int64],
    overlap: NDArray[np.float64],
    truth: NDArray[np.int64],
    found: NDArray[np.int64],
    *,
    excused: NDArray[np.bool_],
    threshold: float,
) -> None:
    """Add the pairs of one image to a confusion matrix.

    Args:
        matrix: (C + 1, C + 1) counts, see :func:`confusion_matrix`; filled in place.
        overlap: (D, G) IoU of detections and objects.
        truth: (G,) classes of the objects.
        found: (D,) classes of the detections.
        excused: (D,) detections that do not count where they have no object.
        threshold: least IoU of a pair.
    """
    partner = match_by_overlap(overlap, threshold=threshold, prefer=found[:, None] == truth[None, :])
    matched = partner >= 0
    np.add.at(matrix, (truth[partner[matched]], found[matched]), 1)
    np.add.at(matrix[:, -1], np.delete(truth, partner[matched]), 1)
    np.add.at(matrix[-1], found[~matched & ~excused], 1)
