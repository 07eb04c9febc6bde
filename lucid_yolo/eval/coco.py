"""COCO average precision of boxes by pycocotools, the evaluator of record, in the frame of the original pictures.

Metric: arXiv 1405.0312 and the COCO detection challenge: 101 recall points, IoU 0.50:0.05:0.95, 100 detections an
image and class.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.eval.columns import DetectionColumns, ImageDetections, to_columns, to_xywh
from lucid_yolo.eval.confusion import confusion_matrix
from lucid_yolo.eval.metrics import CONFIDENCES, BoxMetrics, ConfidenceCurves, count_reaching, mean_of_defined

__all__ = ["BoxMetrics", "evaluate_boxes", "to_coco_json"]

IOU_50, IOU_75 = 0, 5  # rows of the IoU axis of COCOeval's results
AREA_ALL, AREA_SMALL, AREA_MEDIUM, AREA_LARGE = range(4)
DETS_1, DETS_10, DETS_100 = range(3)


def _silent(*_: object, **__: object) -> None:
    """Stand in for ``print``."""


def _without_print(method: Callable[..., Any]) -> Callable[..., Any]:
    """Copy a pycocotools method with a ``print`` that does nothing.

    Redirecting ``sys.stdout`` instead would act on every thread, a progress bar's among them.
    """
    function = cast(FunctionType, method)
    scope = {**function.__globals__, "print": _silent}
    return FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)


class _Coco(COCO):  # type: ignore[misc]
    """Annotations in memory, indexed without a word."""

    createIndex = _without_print(COCO.createIndex)  # noqa: N815 - pycocotools' name

    def __init__(self, dataset: dict[str, Any]) -> None:
        super().__init__()
        self.dataset = dataset
        self.createIndex()


class _CocoEval(COCOeval):  # type: ignore[misc]
    """The evaluator, without its prints."""

    evaluate = _without_print(COCOeval.evaluate)
    accumulate = _without_print(COCOeval.accumulate)


def evaluate_boxes(index: SplitIndex, detections: ImageDetections) -> BoxMetrics:
    """Score detections against a split.

    Crowds are ignored regions: a detection on one counts neither way. Without a detection AP is 0; without an object
    it is NaN.

    Args:
        index: the split; its areas decide small, medium and large.
        detections: by position of the image, pixels of the original picture.

    Raises:
        ValueError: detections that do not fit the split (number of images, labels).
    """
    columns = to_columns(index, detections)
    ranks = _ranks(index.image_ids)
    dataset = {
        "images": [{"id": image} for image in range(len(index))],
        "categories": [{"id": label} for label in range(index.num_classes)],
    }
    truth = _Coco({**dataset, "annotations": _truth_rows(index, ranks)})
    found = _Coco({**dataset, "annotations": _detection_rows(columns, ranks)})
    evaluator = _CocoEval(truth, found, "bbox")
    evaluator.evaluate()
    evaluator.accumulate()
    curves = _confidence_curves(index, evaluator.evalImgs)
    confusion = confusion_matrix(index, detections, confidence=curves.best_confidence())
    return _summarize(index, columns, evaluator, curves, confusion)


def to_coco_json(index: SplitIndex, detections: ImageDetections) -> list[dict[str, Any]]:
    """Detections as COCO result records: the data set's own image and category ids; left, top, width, height in pixels.

    Raises:
        ValueError: see :func:`evaluate_boxes`.
    """
    columns = to_columns(index, detections)
    image_ids = index.image_ids[columns.images].tolist()
    category_ids = np.asarray(index.category_ids, np.int64)[columns.classes].tolist()
    boxes = to_xywh(columns.boxes).tolist()
    return [
        {"image_id": image, "category_id": category, "bbox": box, "score": score}
        for image, category, box, score in zip(image_ids, category_ids, boxes, columns.scores.tolist(), strict=True)
    ]


def _ranks(image_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Position of each image in ascending order of the data set's ids: COCOeval breaks ties of scores in that order."""
    ranks = np.empty(len(image_ids), np.int64)
    ranks[np.argsort(image_ids, kind="stable")] = np.arange(len(image_ids))
    return ranks


def _truth_rows(index: SplitIndex, ranks: NDArray[np.int64]) -> list[dict[str, Any]]:
    images = ranks[np.repeat(np.arange(len(index)), np.diff(index.offsets))].tolist()
    columns = (
        images,
        index.classes.tolist(),
        to_xywh(index.boxes).tolist(),
        index.areas.tolist(),
        index.crowd.tolist(),
    )
    return [  # ids from 1: COCOeval writes the id of the match and reads 0 as none
        {"id": i, "image_id": image, "category_id": label, "bbox": box, "area": area, "iscrowd": int(crowd)}
        for i, (image, label, box, area, crowd) in enumerate(zip(*columns, strict=True), 1)
    ]


def _detection_rows(columns: DetectionColumns, ranks: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Rows as ``COCO.loadRes`` makes them, without the polygon that it adds to each and that boxes do not need."""
    boxes = to_xywh(columns.boxes)
    values = (
        ranks[columns.images].tolist(),
        columns.classes.tolist(),
        boxes.tolist(),
        (boxes[:, 2] * boxes[:, 3]).tolist(),
        columns.scores.tolist(),
    )
    return [
        {"id": i, "image_id": image, "category_id": label, "bbox": box, "area": area, "score": score}
        for i, (image, label, box, area, score) in enumerate(zip(*values, strict=True), 1)
    ]


def _summarize(
    index: SplitIndex,
    columns: DetectionColumns,
    evaluator: COCOeval,
    curves: ConfidenceCurves,
    confusion: NDArray[np.int64],
) -> BoxMetrics:
    precision = _undefined_to_nan(evaluator.eval["precision"])  # (10 IoUs, 101 recalls, C, 4 areas, 3 limits)
    recall = _undefined_to_nan(evaluator.eval["recall"])  # (10, C, 4, 3)
    scores = _undefined_to_nan(evaluator.eval["scores"])
    at_100 = precision[..., DETS_100]
    return BoxMetrics(
        ap=mean_of_defined(at_100[..., AREA_ALL]),
        ap50=mean_of_defined(at_100[IOU_50, ..., AREA_ALL]),
        ap75=mean_of_defined(at_100[IOU_75, ..., AREA_ALL]),
        ap_small=mean_of_defined(at_100[..., AREA_SMALL]),
        ap_medium=mean_of_defined(at_100[..., AREA_MEDIUM]),
        ap_large=mean_of_defined(at_100[..., AREA_LARGE]),
        ar1=mean_of_defined(recall[:, :, AREA_ALL, DETS_1]),
        ar10=mean_of_defined(recall[:, :, AREA_ALL, DETS_10]),
        ar100=mean_of_defined(recall[:, :, AREA_ALL, DETS_100]),
        per_class_ap=at_100[..., AREA_ALL].mean(axis=(0, 1)),
        per_class_ap50=at_100[IOU_50, ..., AREA_ALL].mean(axis=0),
        recall_points=np.asarray(evaluator.params.recThrs, np.float64),
        precision=at_100[IOU_50, ..., AREA_ALL],
        scores=scores[IOU_50, :, :, AREA_ALL, DETS_100],
        curves=curves,
        confusion=confusion,
        images=len(index),
        detections=len(columns),
        invalid=columns.invalid,
    )


def _undefined_to_nan(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(values == -1, np.nan, values)


def _confidence_curves(index: SplitIndex, per_image: list[dict[str, Any] | None]) -> ConfidenceCurves:
    """Count matches by confidence from COCOeval's results, which lie by class, then by area, then by image."""
    results = np.empty(len(per_image), object)
    results[:] = per_image
    by_class = results.reshape(index.num_classes, -1, len(index))[:, AREA_ALL]
    shape = (len(CONFIDENCES), index.num_classes)
    true_positives, false_positives = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for label, images in enumerate(by_class):
        found = [result for result in images if result is not None and result["dtScores"]]
        if not found:
            continue
        scores = np.concatenate([result["dtScores"] for result in found])
        matched = np.concatenate([result["dtMatches"][IOU_50] > 0 for result in found])
        counted = ~np.concatenate([result["dtIgnore"][IOU_50].astype(bool) for result in found])
        true_positives[:, label] = count_reaching(scores[matched & counted])
        false_positives[:, label] = count_reaching(scores[~matched & counted])
    objects = np.bincount(index.classes[~index.crowd], minlength=index.num_classes)
    return ConfidenceCurves(CONFIDENCES, true_positives, false_positives, objects)
