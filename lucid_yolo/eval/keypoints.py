"""COCO average precision of key points by pycocotools: Object Keypoint Similarity stands in the place of IoU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray
from pycocotools.cocoeval import Params

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.eval.coco import Fields, IouType, evaluate_boxes, evaluate_by, score_boxes, score_regions
from lucid_yolo.eval.columns import DetectionColumns, ImageDetections
from lucid_yolo.eval.confusion import BOX_OVERLAPS, Overlaps
from lucid_yolo.eval.metrics import KeypointMetrics, SplitMetrics, shared_values
from lucid_yolo.ops.keypoints import UNIFORM_SIGMA


class PointLabels(Protocol):
    """Labels whose objects have key points.

    Attributes:
        values: (N, K, 3) x and y in pixels, and visibility: 0 not labelled, 1 hidden, 2 seen.
    """

    @property
    def values(self) -> NDArray[np.float32]: ...  # noqa: D102 - described above


def evaluate_keypoints(index: SplitIndex, detections: ImageDetections) -> SplitMetrics:
    """Score key points, and beside them the boxes.

    An object without a labelled point is ignored, as crowds are. Curves are by Object Keypoint Similarity at 0.5, the
    confusion matrix, which is about classes, by the IoU of boxes.

    Args:
        index: the split; its labels are key points, and its ``keypoints`` have the spread of each.
        detections: by position of the image, with key points.

    Raises:
        ValueError: detections that do not fit the split, or either without key points.
    """
    scored, shared = evaluate_by(index, detections, _criterion(index))
    metrics = KeypointMetrics(
        **shared_values(shared), ap_medium=scored.ap("medium"), ap_large=scored.ap("large"), ar20=scored.ar(20)
    )
    return SplitMetrics(metrics, {"box": evaluate_boxes(index, detections)})


def score_keypoints(index: SplitIndex, detections: ImageDetections) -> SplitMetrics:
    """Give the numbers of ``evaluate_keypoints`` that belong to no range of areas and no limit, in less time.

    Raises:
        ValueError: as ``evaluate_keypoints``.
    """
    points = score_regions(index, detections, _criterion(index))
    return SplitMetrics(points, {"box": score_boxes(index, detections)})


@dataclass(frozen=True, slots=True)
class KeypointCriterion:
    """Key points; see ``Criterion``.

    Attributes:
        points: (T, K, 3) of the objects of a split, see ``PointLabels``.
        sigmas: spread of each of the K points.
        iou_type: name of the comparison.
        overlaps: by which the confusion matrix pairs.
    """

    points: NDArray[np.float32]
    sigmas: tuple[float, ...]
    iou_type: IouType = IouType.KEYPOINTS
    overlaps: Overlaps = BOX_OVERLAPS

    def configure(self, params: Params) -> None:
        """Set the spread of each point."""
        params.kpt_oks_sigmas = np.array(self.sigmas, np.float64)

    def truth(self, index: SplitIndex) -> Iterable[Fields]:
        """Points, and how many of them are labelled."""
        columns = (_flat(self.points), self._labelled().tolist())
        return ({"keypoints": points, "num_keypoints": number} for points, number in zip(*columns, strict=True))

    def found(self, index: SplitIndex, columns: DetectionColumns) -> Iterable[Fields]:
        """Points, and the area around them."""
        points = point_column(columns, self.points.shape[1])
        sides = points[..., :2].max(axis=1) - points[..., :2].min(axis=1)
        rows = (_flat(points), sides.prod(axis=1).tolist())
        return ({"keypoints": one, "area": area} for one, area in zip(*rows, strict=True))

    def counts(self, index: SplitIndex) -> NDArray[np.bool_]:
        """All but crowds and objects without a labelled point."""
        return ~index.crowd & (self._labelled() > 0)

    def _labelled(self) -> NDArray[np.int64]:
        return np.asarray((self.points[..., 2] > 0).sum(axis=1), np.int64)


def _criterion(index: SplitIndex) -> KeypointCriterion:
    if index.labels is None:
        raise ValueError(f"{index.source} was read without key points")
    points = cast(PointLabels, index.labels).values
    sigmas = None if index.keypoints is None else index.keypoints.sigmas
    return KeypointCriterion(points, (UNIFORM_SIGMA,) * points.shape[1] if sigmas is None else sigmas)


def point_column(columns: DetectionColumns, number: int) -> NDArray[np.float64]:
    """Key points of all detections, (N, K, 3).

    Args:
        columns: the detections.
        number: K.

    Raises:
        ValueError: there are detections, and they have none or not K.
    """
    if columns.keypoints is None and not len(columns):
        return np.zeros((0, number, 3))
    if columns.keypoints is None or columns.keypoints.shape[1] != number:
        has = "none" if columns.keypoints is None else str(columns.keypoints.shape[1])
        raise ValueError(f"the labels have {number} key points an object, and the detections have {has}")
    return columns.keypoints


def _flat(points: NDArray[np.floating]) -> list[list[float]]:
    """x, y, visibility or score of each point, one after the other."""
    rows: list[list[float]] = points.reshape(len(points), points.shape[1] * points.shape[2]).tolist()
    return rows
