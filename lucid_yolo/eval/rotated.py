"""Average precision of rotated boxes, by the rules of the COCO detection challenge (arXiv 1405.0312) on exact overlap.

IoU 0.50:0.05:0.95 and 101 recall points, both as exact hundredths. An ignored object (DOTA's ``difficult``) is matched
one to one like any other, and neither it nor its detection counts; where a detection reaches both, the object that
counts is matched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.eval.confusion import count_pairs
from lucid_yolo.eval.matching import match_by_score_at
from lucid_yolo.eval.metrics import CONFIDENCES, ConfidenceCurves, DetectionMetrics, count_reaching, mean_of_defined
from lucid_yolo.ops.detections import RotatedDetections
from lucid_yolo.ops.rotated_iou import rotated_iou

THRESHOLDS = np.arange(50, 100, 5) / 100
RECALL_POINTS = np.arange(101) / 100
IOU_50, IOU_75 = 0, 5  # rows of THRESHOLDS


@dataclass(frozen=True, slots=True)
class RotatedObjects:
    """Labelled objects of one image.

    Attributes:
        boxes: (T, 5) cx, cy, w, h in pixels of the original picture, theta in radians; any encoding.
        classes: (T,) labels.
        ignored: (T,) bool, objects that need not be found.
    """

    boxes: NDArray[np.floating]
    classes: NDArray[np.int64]
    ignored: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Outcomes:
    """What became of the detections of one image, best first, or of all images.

    Attributes:
        scores: (D,) confidence.
        classes: (D,) labels.
        hit: (R, D) bool, matches an object that counts.
        counted: (R, D) bool, does not match an ignored object.
    """

    scores: NDArray[np.floating]
    classes: NDArray[np.int64]
    hit: NDArray[np.bool_]
    counted: NDArray[np.bool_]


def evaluate_rotated(
    objects: Sequence[RotatedObjects], detections: Sequence[RotatedDetections], *, num_classes: int, limit: int = 300
) -> DetectionMetrics:
    """Score rotated detections.

    Without a detection AP is 0; without an object that counts it is NaN. A detection with a number that is not finite
    is left out and counted as invalid.

    Args:
        objects: one entry an image.
        detections: one entry an image, in the same order and frame.
        num_classes: C.
        limit: detections of an image that are evaluated, the best ones.

    Raises:
        ValueError: detections of another number of images, or a class outside of 0 .. C-1.
    """
    if len(detections) != len(objects):
        raise ValueError(f"detections of {len(detections)} images, but labels of {len(objects)}")
    _check_classes("an object", [truth.classes for truth in objects], num_classes)
    _check_classes("a detection", [found.classes for found in detections], num_classes)
    valid = [_valid(found) for found in detections]
    best = [_best(found, limit) for found in valid]
    outcomes = _concatenate([_match(found, truth) for found, truth in zip(best, objects, strict=True)])
    counting = np.concatenate([np.zeros(0, np.int64), *(truth.classes[~truth.ignored] for truth in objects)])
    number = np.bincount(counting, minlength=num_classes)
    precision, scores = _precision_at_recall(outcomes, number)
    curves = _confidence_curves(outcomes, number)
    per_class = precision.mean(axis=1)
    return DetectionMetrics(
        ap=mean_of_defined(per_class),
        ap50=mean_of_defined(per_class[IOU_50]),
        ap75=mean_of_defined(per_class[IOU_75]),
        per_class_ap=per_class.mean(axis=0),
        per_class_ap50=per_class[IOU_50],
        recall_points=RECALL_POINTS.copy(),
        precision=precision[IOU_50],
        scores=scores[IOU_50],
        curves=curves,
        confusion=_confusion(best, objects, num_classes, confidence=curves.best_confidence()),
        images=len(objects),
        detections=len(outcomes.scores),
        invalid=sum(map(len, detections)) - sum(map(len, valid)),
    )


def _check_classes(what: str, columns: Sequence[NDArray[np.int64]], num_classes: int) -> None:
    for image, classes in enumerate(columns):
        wrong = classes[(classes < 0) | (classes >= num_classes)]
        if len(wrong):
            raise ValueError(
                f"{what} of class {wrong[0]} in image {image}, but there are classes 0 to {num_classes - 1}"
            )


def _valid(found: RotatedDetections) -> RotatedDetections:
    keep = np.isfinite(found.boxes).all(axis=1) & np.isfinite(found.scores)
    return RotatedDetections(found.boxes[keep], found.scores[keep], found.classes[keep])


def _best(found: RotatedDetections, limit: int) -> RotatedDetections:
    order = np.argsort(-found.scores, kind="stable")[:limit]
    return RotatedDetections(found.boxes[order], found.scores[order], found.classes[order])


def _match(found: RotatedDetections, truth: RotatedObjects) -> _Outcomes:
    """Pair the detections of one image with its objects at every threshold."""
    overlap = rotated_iou(found.boxes, truth.boxes)
    overlap[found.classes[:, None] != truth.classes[None, :]] = 0.0
    partner = match_by_score_at(overlap, truth.ignored, THRESHOLDS)
    ignored, counts = np.append(truth.ignored, False), np.append(~truth.ignored, False)  # -1, no object, is the last
    return _Outcomes(found.scores, found.classes, hit=counts[partner], counted=~ignored[partner])


def _concatenate(outcomes: Sequence[_Outcomes]) -> _Outcomes:
    nothing = np.zeros((len(THRESHOLDS), 0), bool)
    return _Outcomes(
        np.concatenate([np.zeros(0), *(image.scores for image in outcomes)]),
        np.concatenate([np.zeros(0, np.int64), *(image.classes for image in outcomes)]),
        np.concatenate([nothing, *(image.hit for image in outcomes)], axis=1),
        np.concatenate([nothing, *(image.counted for image in outcomes)], axis=1),
    )


def _precision_at_recall(
    outcomes: _Outcomes, number: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Interpolate the precision of each threshold and class.

    Args:
        outcomes: of all images.
        number: (C,) objects a class that count.

    Returns:
        (R, 101, C) precision: the best that is reached with at least this recall, 0 beyond the largest; and (R, 101, C)
        the score at which that recall is reached. NaN for classes without objects.
    """
    shape = (len(THRESHOLDS), len(RECALL_POINTS), len(number))
    precision, scores = np.full(shape, np.nan), np.full(shape, np.nan)
    for label in np.flatnonzero(number):
        of_class = np.flatnonzero(outcomes.classes == label)
        order = of_class[np.argsort(-outcomes.scores[of_class], kind="stable")]
        for level in range(len(THRESHOLDS)):
            counted = order[outcomes.counted[level, order]]
            hits = outcomes.hit[level, counted].cumsum()
            reached = np.maximum.accumulate((hits / np.arange(1, len(hits) + 1))[::-1])[::-1]
            # Quotients of whole numbers round alike: recall 57 / 100 reaches the point 57 / 100.
            at = np.searchsorted(hits / number[label], RECALL_POINTS, side="left")
            precision[level, :, label] = np.append(reached, 0.0)[at]
            scores[level, :, label] = np.append(outcomes.scores[counted], 0.0)[at]
    return precision, scores


def _confidence_curves(outcomes: _Outcomes, number: NDArray[np.int64]) -> ConfidenceCurves:
    hit, false = outcomes.hit[IOU_50], outcomes.counted[IOU_50] & ~outcomes.hit[IOU_50]
    shape = (len(CONFIDENCES), len(number))
    true_positives, false_positives = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for label in range(len(number)):
        of_class = outcomes.classes == label
        true_positives[:, label] = count_reaching(outcomes.scores[hit & of_class])
        false_positives[:, label] = count_reaching(outcomes.scores[false & of_class])
    return ConfidenceCurves(CONFIDENCES, true_positives, false_positives, number)


def _confusion(
    detections: Sequence[RotatedDetections], objects: Sequence[RotatedObjects], num_classes: int, *, confidence: float
) -> NDArray[np.int64]:
    """Count pairs by class as ``eval.confusion`` does; ignored objects take the place of crowds."""
    matrix = np.zeros((num_classes + 1, num_classes + 1), np.int64)
    for detected, truth in zip(detections, objects, strict=True):
        found, counts = detected.above(confidence), ~truth.ignored
        overlap = rotated_iou(found.boxes, truth.boxes)
        on_ignored = (overlap >= THRESHOLDS[IOU_50]) & (found.classes[:, None] == truth.classes[None, :]) & ~counts
        count_pairs(
            matrix,
            overlap[:, counts],
            truth.classes[counts],
            found.classes,
            excused=on_ignored.any(axis=1),
            threshold=THRESHOLDS[IOU_50],
        )
    return matrix
