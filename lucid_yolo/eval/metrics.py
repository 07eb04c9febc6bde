"""The numbers of an evaluation: average precision, and what each confidence threshold would give."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

CONFIDENCES = np.linspace(0.0, 1.0, 1001)
"""Thresholds of ``ConfidenceCurves`` that an evaluation counts."""


@dataclass(frozen=True, slots=True)
class ConfidenceCurves:
    """Counts at IoU 0.5 of what is kept from each confidence on.

    Attributes:
        confidences: (G,) thresholds, ascending from 0 to 1.
        true_positives: (G, C) kept detections that match an object.
        false_positives: (G, C) kept detections that match nothing (those on crowd regions count in neither).
        objects: (C,) objects a class, crowds excluded.
    """

    confidences: NDArray[np.float64]
    true_positives: NDArray[np.int64]
    false_positives: NDArray[np.int64]
    objects: NDArray[np.int64]

    def precision(self) -> NDArray[np.float64]:
        """(G, C) share of the kept detections that are right; NaN where none is kept."""
        kept = self.true_positives + self.false_positives
        return _divide(self.true_positives, kept)

    def recall(self) -> NDArray[np.float64]:
        """(G, C) share of the objects that are found; NaN for a class without objects."""
        return _divide(self.true_positives, np.broadcast_to(self.objects, self.true_positives.shape))

    def f1(self) -> NDArray[np.float64]:
        """(G, C) harmonic mean of precision and recall, 2 TP / (2 TP + FP + FN); NaN for a class without objects."""
        total = self.true_positives + self.false_positives + self.objects
        return _divide(2 * self.true_positives, np.where(self.objects > 0, total, 0))

    def mean_f1(self) -> NDArray[np.float64]:
        """(G,) F1 averaged over the classes that have objects; zeros without any object."""
        present = self.objects > 0
        if not present.any():
            return np.zeros(len(self.confidences))
        return np.asarray(self.f1()[:, present].mean(axis=1), np.float64)

    def best_confidence(self) -> float:
        """Threshold of the highest mean F1; the middle of the range where several thresholds reach it."""
        curve = self.mean_f1()
        first = int(curve.argmax())
        below = np.flatnonzero(curve[first:] < curve[first])
        last = first + int(below[0]) - 1 if len(below) else len(curve) - 1
        return float((self.confidences[first] + self.confidences[last]) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionMetrics:
    """What every evaluation of detections gives. What no object defines is NaN; a mean leaves such classes out.

    Attributes:
        ap: mean average precision at IoU 0.50:0.95.
        ap50: the same at IoU 0.5.
        ap75: the same at IoU 0.75.
        per_class_ap: (C,) AP of each class.
        per_class_ap50: (C,) AP at IoU 0.5 of each class.
        recall_points: (101,) recall at which ``precision`` and ``scores`` are given, 0.00 to 1.00.
        precision: (101, C) interpolated precision at IoU 0.5; NaN for a class without objects.
        scores: (101, C) confidence at which that recall is reached, 0 where it never is; NaN likewise.
        curves: counts by confidence.
        confusion: (C + 1, C + 1) counts at ``best_confidence``, see ``eval.confusion``.
        images: images evaluated.
        detections: detections evaluated.
        invalid: detections left out because a number was not finite.
    """

    headline: ClassVar[tuple[str, ...]] = ("ap", "ap50", "ap75")

    ap: float
    ap50: float
    ap75: float
    per_class_ap: NDArray[np.float64]
    per_class_ap50: NDArray[np.float64]
    recall_points: NDArray[np.float64]
    precision: NDArray[np.float64]
    scores: NDArray[np.float64]
    curves: ConfidenceCurves
    confusion: NDArray[np.int64]
    images: int
    detections: int
    invalid: int

    @property
    def best_confidence(self) -> float:
        """Confidence of the highest mean F1 at IoU 0.5."""
        return self.curves.best_confidence()

    @property
    def best_f1(self) -> float:
        """Highest mean F1 at IoU 0.5."""
        return float(self.curves.mean_f1().max())

    def precision_and_recall(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of each class (C,) at IoU 0.5, where what reaches ``best_confidence`` is kept; NaN where undefined."""
        at = int(np.searchsorted(self.curves.confidences, self.best_confidence))
        return self.curves.precision()[at], self.curves.recall()[at]

    def as_dict(self, class_names: Sequence[str]) -> dict[str, object]:
        """Plain containers for a JSON report; NaN becomes None, which JSON can hold."""
        precision, recall = self.precision_and_recall()
        classes = [
            {
                "name": name,
                "objects": int(self.curves.objects[i]),
                "precision": _number(precision[i]),
                "recall": _number(recall[i]),
                "ap": _number(self.per_class_ap[i]),
                "ap50": _number(self.per_class_ap50[i]),
            }
            for i, name in enumerate(class_names)
        ]
        return {
            **{name: _number(getattr(self, name)) for name in self.headline},
            "best_confidence": self.best_confidence,
            "best_f1": self.best_f1,
            "images": self.images,
            "objects": int(self.curves.objects.sum()),
            "detections": self.detections,
            "invalid_detections": self.invalid,
            "classes": classes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxMetrics(DetectionMetrics):
    """COCO metrics of boxes or masks. What no object defines is NaN (COCO prints -1).

    Attributes:
        ap_small: AP of objects below 32 x 32 pixels.
        ap_medium: AP of objects between 32 x 32 and 96 x 96 pixels.
        ap_large: AP of objects above 96 x 96 pixels.
        ar1: mean recall over IoU 0.50:0.95 with one detection an image and class.
        ar10: the same with 10.
        ar100: the same with 100.
    """

    headline: ClassVar[tuple[str, ...]] = (
        "ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large", "ar1", "ar10", "ar100"
    )  # fmt: skip

    ap_small: float
    ap_medium: float
    ap_large: float
    ar1: float
    ar10: float
    ar100: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KeypointMetrics(DetectionMetrics):
    """COCO metrics of key points: Object Keypoint Similarity stands in the place of IoU. NaN as in ``BoxMetrics``.

    Attributes:
        ap_medium: AP of objects between 32 x 32 and 96 x 96 pixels.
        ap_large: AP of objects above 96 x 96 pixels.
        ar20: mean recall over similarities 0.50:0.95 with 20 detections an image and class, COCO's limit here.
    """

    headline: ClassVar[tuple[str, ...]] = ("ap", "ap50", "ap75", "ap_medium", "ap_large", "ar20")

    ap_medium: float
    ap_large: float
    ar20: float


@dataclass(frozen=True, slots=True)
class SplitMetrics:
    """Scores of a split by what is compared.

    Attributes:
        main: of what the task is about; curves and confusion are drawn of it.
        beside: further ones by name, such as "box".
    """

    main: DetectionMetrics
    beside: Mapping[str, DetectionMetrics] = field(default_factory=dict)

    def as_dict(self, class_names: Sequence[str]) -> dict[str, object]:
        """Plain containers for a JSON report: the main scores, and the others under their names."""
        others = {name: metrics.as_dict(class_names) for name, metrics in self.beside.items()}
        return {**self.main.as_dict(class_names), **others}


def shared_values(metrics: DetectionMetrics) -> dict[str, Any]:
    """Fields that every evaluation has, to build metrics with more of them."""
    return {one.name: getattr(metrics, one.name) for one in fields(DetectionMetrics)}


def count_reaching(scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """(G,) how many scores reach each threshold of ``CONFIDENCES``."""
    return len(scores) - np.searchsorted(np.sort(scores), CONFIDENCES, side="left")


def mean_of_defined(values: NDArray[np.float64]) -> float:
    """Mean of what is not NaN; NaN where nothing is."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")


def _divide(numerator: NDArray[np.int64], denominator: NDArray[np.int64]) -> NDArray[np.float64]:
    """Quotient, NaN where the denominator is 0."""
    result = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
