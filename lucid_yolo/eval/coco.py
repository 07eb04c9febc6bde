"""COCO average precision by pycocotools, the evaluator of record, in the frame of the original pictures.

Metric: arXiv 1405.0312 and the COCO detection challenge: 101 recall points, IoU 0.50:0.05:0.95, 100 detections an
image and class. Boxes, masks and key points go the same way; a ``Criterion`` says what is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import repeat
from types import FunctionType
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval, Params

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.eval.columns import DetectionColumns, ImageDetections, to_columns, to_xywh
from lucid_yolo.eval.confusion import BOX_OVERLAPS, Overlaps, confusion_matrix
from lucid_yolo.eval.metrics import (
    CONFIDENCES,
    BoxMetrics,
    ConfidenceCurves,
    DetectionMetrics,
    count_reaching,
    mean_of_defined,
    shared_values,
)

__all__ = ["BoxMetrics", "evaluate_boxes", "score_boxes"]

IOU_50, IOU_75 = 0, 5  # rows of the IoU axis of COCOeval's results
ALL_AREAS = "all"
Fields = dict[str, Any]
"""Some fields of an annotation or of a result, as the COCO tools name them."""


class IouType(StrEnum):
    """What is compared, as the COCO tools name it."""

    BOXES = "bbox"
    MASKS = "segm"
    KEYPOINTS = "keypoints"


class Division(StrEnum):
    """What scores are given for: each range of areas and each limit of COCO, or all areas at the largest limit."""

    COCO = "coco"
    NONE = "none"

    def configure(self, params: Params) -> None:
        """Leave out what is not asked for; the time of an evaluation grows with the number of areas and limits."""
        if self is Division.NONE:
            whole = params.areaRngLbl.index(ALL_AREAS)
            params.areaRng, params.areaRngLbl = [params.areaRng[whole]], [ALL_AREAS]
            params.maxDets = [max(params.maxDets)]


class Criterion(Protocol):
    """What detections and objects are compared by.

    Attributes:
        iou_type: name of the comparison.
        overlaps: by which the confusion matrix pairs them.
    """

    @property
    def iou_type(self) -> IouType: ...

    @property
    def overlaps(self) -> Overlaps: ...

    def configure(self, params: Params) -> None:
        """Change the settings of one evaluation."""
        ...

    def truth(self, index: SplitIndex) -> Iterable[Fields]:
        """What an annotation has beside box, class, area and crowd; one entry an object."""
        ...

    def found(self, index: SplitIndex, columns: DetectionColumns) -> Iterable[Fields]:
        """Area, and what a result has beside box, class and score; one entry a detection."""
        ...

    def counts(self, index: SplitIndex) -> NDArray[np.bool_]:
        """(T,) which objects are to be found."""
        ...


@dataclass(frozen=True, slots=True)
class BoxCriterion:
    """Boxes; see ``Criterion``."""

    iou_type: IouType = IouType.BOXES
    overlaps: Overlaps = BOX_OVERLAPS

    def configure(self, params: Params) -> None:
        """COCO's settings."""

    def truth(self, index: SplitIndex) -> Iterable[Fields]:
        """Nothing else."""
        return repeat({}, len(index.classes))

    def found(self, index: SplitIndex, columns: DetectionColumns) -> Iterable[Fields]:
        """Area of the box."""
        sides = columns.boxes[:, 2:] - columns.boxes[:, :2]
        return ({"area": area} for area in sides.prod(axis=1).tolist())

    def counts(self, index: SplitIndex) -> NDArray[np.bool_]:
        """All but crowds."""
        return ~index.crowd


@dataclass(frozen=True, slots=True)
class Scored:
    """Results of COCOeval. What no object defines is NaN.

    Attributes:
        precision: (10 IoUs, 101 recalls, C, areas, limits).
        recall: (10, C, areas, limits).
        scores: as ``precision``, the confidence at which that recall is reached.
        recall_points: (101,) of the second axis.
        areas: names of the ranges of areas.
        limits: most detections an image and class, ascending.
    """

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    scores: NDArray[np.float64]
    recall_points: NDArray[np.float64]
    areas: tuple[str, ...]
    limits: tuple[int, ...]

    @classmethod
    def of(cls, evaluator: COCOeval) -> Scored:
        """Read an evaluator."""
        return cls(
            precision=_undefined_to_nan(evaluator.eval["precision"]),
            recall=_undefined_to_nan(evaluator.eval["recall"]),
            scores=_undefined_to_nan(evaluator.eval["scores"]),
            recall_points=np.asarray(evaluator.params.recThrs, np.float64),
            areas=tuple(evaluator.params.areaRngLbl),
            limits=tuple(evaluator.params.maxDets),
        )

    def precision_of(self, area: str) -> NDArray[np.float64]:
        """(10, 101, C) of one range of areas, at the largest limit."""
        return self.precision[..., self.areas.index(area), -1]

    def ap(self, area: str) -> float:
        """AP at IoU 0.50:0.95 of one range of areas."""
        return mean_of_defined(self.precision_of(area))

    def ar(self, limit: int) -> float:
        """Mean recall at IoU 0.50:0.95 with so many detections an image and class."""
        return mean_of_defined(self.recall[:, :, self.areas.index(ALL_AREAS), self.limits.index(limit)])


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

    def __init__(self, dataset: Fields) -> None:
        super().__init__()
        self.dataset = dataset
        self.createIndex()


class _CocoEval(COCOeval):  # type: ignore[misc]
    """The evaluator, without its prints."""

    evaluate = _without_print(COCOeval.evaluate)
    accumulate = _without_print(COCOeval.accumulate)


def evaluate_boxes(index: SplitIndex, detections: ImageDetections) -> BoxMetrics:
    """Score the boxes of detections against a split; see :func:`evaluate_regions`."""
    return evaluate_regions(index, detections, BoxCriterion())


def evaluate_regions(index: SplitIndex, detections: ImageDetections, criterion: Criterion) -> BoxMetrics:
    """Score boxes or masks against a split.

    Crowds are ignored regions: a detection on one counts neither way. Without a detection AP is 0; without an object
    it is NaN.

    Args:
        index: the split; its areas decide small, medium and large.
        detections: by position of the image, pixels of the original picture.
        criterion: what is compared.

    Raises:
        ValueError: detections that do not fit the split (number of images, labels).
    """
    scored, shared = evaluate_by(index, detections, criterion)
    return BoxMetrics(
        **shared_values(shared),
        ap_small=scored.ap("small"),
        ap_medium=scored.ap("medium"),
        ap_large=scored.ap("large"),
        ar1=scored.ar(1),
        ar10=scored.ar(10),
        ar100=scored.ar(100),
    )


def score_boxes(index: SplitIndex, detections: ImageDetections) -> DetectionMetrics:
    """Score the boxes of detections against a split; see :func:`score_regions`."""
    return score_regions(index, detections, BoxCriterion())


def score_regions(index: SplitIndex, detections: ImageDetections, criterion: Criterion) -> DetectionMetrics:
    """Give the numbers of :func:`evaluate_regions` that belong to no range of areas and no limit, in less time.

    Raises:
        ValueError: detections that do not fit the split (number of images, labels).
    """
    return evaluate_by(index, detections, criterion, Division.NONE)[1]


def evaluate_by(
    index: SplitIndex, detections: ImageDetections, criterion: Criterion, division: Division = Division.COCO
) -> tuple[Scored, DetectionMetrics]:
    """Run COCOeval, and give its results and what every evaluation has in common.

    Raises:
        ValueError: detections that do not fit the split (number of images, labels).
    """
    columns = to_columns(index, detections)
    ranks = _ranks(index.image_ids)
    dataset = {
        "images": [
            {"id": rank, "width": width, "height": height}
            for rank, (width, height) in zip(ranks.tolist(), index.sizes.tolist(), strict=True)
        ],
        "categories": [{"id": label} for label in range(index.num_classes)],
    }
    truth = _Coco({**dataset, "annotations": _truth_rows(index, ranks, criterion)})
    found = _Coco({**dataset, "annotations": _detection_rows(index, columns, ranks, criterion)})
    evaluator = _CocoEval(truth, found, criterion.iou_type.value)
    criterion.configure(evaluator.params)
    division.configure(evaluator.params)
    evaluator.evaluate()
    evaluator.accumulate()
    scored = Scored.of(evaluator)
    curves = _confidence_curves(index, evaluator.evalImgs, criterion.counts(index))
    precision = scored.precision_of(ALL_AREAS)
    shared = DetectionMetrics(
        ap=mean_of_defined(precision),
        ap50=mean_of_defined(precision[IOU_50]),
        ap75=mean_of_defined(precision[IOU_75]),
        per_class_ap=precision.mean(axis=(0, 1)),
        per_class_ap50=precision[IOU_50].mean(axis=0),
        recall_points=scored.recall_points,
        precision=precision[IOU_50],
        scores=scored.scores[IOU_50, :, :, scored.areas.index(ALL_AREAS), -1],
        curves=curves,
        confusion=confusion_matrix(index, detections, confidence=curves.best_confidence(), overlaps=criterion.overlaps),
        images=len(index),
        detections=len(columns),
        invalid=columns.invalid,
    )
    return scored, shared


def _ranks(image_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Position of each image in ascending order of the data set's ids: COCOeval breaks ties of scores in that order."""
    ranks = np.empty(len(image_ids), np.int64)
    ranks[np.argsort(image_ids, kind="stable")] = np.arange(len(image_ids))
    return ranks


def _truth_rows(index: SplitIndex, ranks: NDArray[np.int64], criterion: Criterion) -> list[Fields]:
    images = ranks[np.repeat(np.arange(len(index)), np.diff(index.offsets))].tolist()
    columns = (
        images,
        index.classes.tolist(),
        to_xywh(index.boxes).tolist(),
        index.areas.tolist(),
        index.crowd.tolist(),
        criterion.truth(index),
    )
    return [  # ids from 1: COCOeval writes the id of the match and reads 0 as none
        {"id": i, "image_id": image, "category_id": label, "bbox": box, "area": area, "iscrowd": int(crowd), **more}
        for i, (image, label, box, area, crowd, more) in enumerate(zip(*columns, strict=True), 1)
    ]


def _detection_rows(
    index: SplitIndex, columns: DetectionColumns, ranks: NDArray[np.int64], criterion: Criterion
) -> list[Fields]:
    """Rows as ``COCO.loadRes`` makes them, without the polygon that it adds to each and that nothing here needs."""
    values = (
        ranks[columns.images].tolist(),
        columns.classes.tolist(),
        to_xywh(columns.boxes).tolist(),
        columns.scores.tolist(),
        criterion.found(index, columns),
    )
    return [
        {"id": i, "image_id": image, "category_id": label, "bbox": box, "score": score, **more}
        for i, (image, label, box, score, more) in enumerate(zip(*values, strict=True), 1)
    ]


def _undefined_to_nan(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(values == -1, np.nan, values)


def _confidence_curves(
    index: SplitIndex, per_image: list[Fields | None], counts: NDArray[np.bool_]
) -> ConfidenceCurves:
    """Count matches by confidence from COCOeval's results, which lie by class, then by area, then by image."""
    results = np.empty(len(per_image), object)
    results[:] = per_image
    by_class = results.reshape(index.num_classes, -1, len(index))[:, 0]  # all areas
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
    objects = np.bincount(index.classes[counts], minlength=index.num_classes)
    return ConfidenceCurves(CONFIDENCES, true_positives, false_positives, objects)
