"""Which class is taken for which."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.eval.columns import DetectionColumns, ImageDetections, to_columns
from lucid_yolo.eval.matching import match_by_overlap, pairwise_coverage, pairwise_iou


class Overlaps(Protocol):
    """How much detections and objects of one image cover each other."""

    def iou(
        self, index: SplitIndex, columns: DetectionColumns, found: NDArray[np.int64], objects: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Intersection over union.

        Args:
            index: the split.
            columns: its detections.
            found: (D,) rows of the detections.
            objects: (G,) rows of the objects.

        Returns:
            (D, G) 0 .. 1.
        """
        ...

    def coverage(
        self, index: SplitIndex, columns: DetectionColumns, found: NDArray[np.int64], objects: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Share of each detection that lies in each crowd, (D, G); arguments as for ``iou``."""
        ...


class BoxOverlaps:
    """Overlap of boxes; see ``Overlaps``."""

    def iou(
        self, index: SplitIndex, columns: DetectionColumns, found: NDArray[np.int64], objects: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Intersection over union of boxes."""
        return pairwise_iou(columns.boxes[found], index.boxes[objects])

    def coverage(
        self, index: SplitIndex, columns: DetectionColumns, found: NDArray[np.int64], objects: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Share of each box that lies in the box of each crowd."""
        return pairwise_coverage(columns.boxes[found], index.boxes[objects])


BOX_OVERLAPS = BoxOverlaps()


def confusion_matrix(
    index: SplitIndex,
    detections: ImageDetections,
    *,
    confidence: float = 0.25,
    iou: float = 0.5,
    overlaps: Overlaps = BOX_OVERLAPS,
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
        overlaps: what the IoU is of.

    Returns:
        (C + 1, C + 1) counts, row = class of the object, column = class of the detection.

    Raises:
        ValueError: detections that do not fit the split.
    """
    columns = to_columns(index, detections)
    bounds = np.searchsorted(columns.images, np.arange(len(index) + 1))
    matrix = np.zeros((index.num_classes + 1, index.num_classes + 1), np.int64)
    for image in range(len(index)):
        rows, found = np.arange(len(index.crowd))[index.rows(image)], np.arange(bounds[image], bounds[image + 1])
        found = found[columns.scores[found] >= confidence]
        objects, crowds, classes = rows[~index.crowd[rows]], rows[index.crowd[rows]], columns.classes[found]
        on_crowd = (overlaps.coverage(index, columns, found, crowds) >= iou) & (
            classes[:, None] == index.classes[crowds][None, :]
        )
        count_pairs(
            matrix,
            overlaps.iou(index, columns, found, objects),
            index.classes[objects],
            classes,
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
