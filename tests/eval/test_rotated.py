"""AP of rotated boxes against hand calculation and the COCO tools, on upright boxes and on shapely's overlap."""

from __future__ import annotations

import contextlib
import io
import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from lucid_yolo.eval.matching import match_by_score, match_by_score_at
from lucid_yolo.eval.metrics import DetectionMetrics
from lucid_yolo.eval.rotated import RotatedObjects, evaluate_rotated
from lucid_yolo.ops.detections import RotatedDetections
from tests.ops.rotated_boxes import polygon_iou

Case = tuple[list[RotatedObjects], list[RotatedDetections]]
BEYOND_EVERY_AREA = 1e11  # the COCO tools ignore an object whose area is outside of the range, and match it one to one


def objects(*rows: tuple[float, float, float, float, float, int], ignored: Sequence[int] = ()) -> RotatedObjects:
    """From cx, cy, w, h, theta, label; the numbers of the rows that are ignored."""
    table = np.array(rows, np.float64).reshape(-1, 6)
    flags = np.isin(np.arange(len(table)), ignored)
    return RotatedObjects(table[:, :5], table[:, 5].astype(np.int64), flags)


def found(*rows: tuple[float, float, float, float, float, float, int]) -> RotatedDetections:
    """From cx, cy, w, h, theta, score, label."""
    table = np.array(rows, np.float64).reshape(-1, 7)
    return RotatedDetections(
        table[:, :5].astype(np.float32), table[:, 5].astype(np.float32), table[:, 6].astype(np.int64)
    )


def random_case(seed: int, *, turn: float, ignored: float, images: int = 8) -> Case:
    """Jittered detections with ties, empty images, a class without objects; angles up to ``turn``."""
    rng = np.random.default_rng(seed)
    truths, detections = [], []
    for _ in range(images):
        count, extra = int(rng.integers(0, 9)), int(rng.integers(0, 5))
        boxes = rng.uniform([20, 20, 10, 10, -turn], [100, 100, 60, 40, turn], (count, 5))
        labels = rng.integers(0, 3, count)
        truths.append(RotatedObjects(boxes, labels, rng.random(count) < ignored))
        near = boxes + rng.normal(0, [3, 3, 3, 3, 0.1 * turn], (count, 5))
        again = boxes[rng.random(count) < 0.3] + np.array([1, 1, 0, 0, 0])  # second detections, also of ignored objects
        far = rng.uniform([20, 20, 10, 10, -turn], [100, 100, 60, 40, turn], (extra, 5))
        hits = np.concatenate([np.where(rng.random(count) < 0.8, labels, 3), rng.integers(0, 4, len(again) + extra)])
        scores = np.round(rng.random(len(hits)), 1)  # tenths: many ties
        detections.append(
            RotatedDetections(np.concatenate([near, again, far]).astype(np.float32), scores.astype(np.float32), hits)
        )
    return truths, detections


class PolygonEval(COCOeval):  # type: ignore[misc]
    """The COCO tools' matching and accumulation on the overlap of polygons."""

    boxes: dict[int, tuple[float, ...]]

    def computeIoU(self, image: int, label: int) -> NDArray[np.float64]:  # noqa: N802 - pycocotools' name
        rows, columns = self._dts[image, label], self._gts[image, label]
        order = np.argsort([-row["score"] for row in rows], kind="mergesort")
        return np.array(
            [[polygon_iou(rows[i]["rotated"], column["rotated"]) for column in columns] for i in order]
        ).reshape(len(rows), len(columns))


def coco_tools(case: Case, evaluator: type[COCOeval], num_classes: int = 4, limit: int = 300) -> COCOeval:
    """Evaluate with the COCO tools: upright boxes as they are, and the rotated ones beside them."""
    truths, detections = case
    header = {"images": [{"id": i} for i in range(len(truths))], "categories": [{"id": i} for i in range(num_classes)]}

    def record(number: int, image: int, box: list[float], label: int) -> dict[str, object]:
        x, y, width, height, _ = box
        upright = [x - width / 2, y - height / 2, width, height]
        return {"id": number, "image_id": image, "category_id": label, "bbox": upright, "rotated": tuple(box)}

    annotations = [
        record(0, image, box, label) | {"iscrowd": 0, "area": BEYOND_EVERY_AREA if flag else box[2] * box[3]}
        for image, truth in enumerate(truths)
        for box, label, flag in zip(truth.boxes.tolist(), truth.classes.tolist(), truth.ignored.tolist(), strict=True)
    ]
    results = [
        record(0, image, box, label) | {"score": score, "area": box[2] * box[3]}
        for image, one in enumerate(detections)
        for box, score, label in zip(one.boxes.tolist(), one.scores.tolist(), one.classes.tolist(), strict=True)
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        sides = []
        for rows in (annotations, results):
            side = COCO()
            side.dataset = {**header, "annotations": [row | {"id": i} for i, row in enumerate(rows, 1)]}
            side.createIndex()
            sides.append(side)
        tools = evaluator(*sides, "bbox")
        tools.params.maxDets = [limit]
        tools.params.areaRng, tools.params.areaRngLbl = [[0, 1e10]], ["all"]
        tools.params.recThrs = np.arange(101) / 100  # linspace misses some hundredths by a bit
        tools.params.iouThrs = np.arange(50, 100, 5) / 100
        tools.evaluate()
        tools.accumulate()
    return tools


def assert_equal_to_the_tools(metrics: DetectionMetrics, tools: COCOeval) -> None:
    precision = np.where(tools.eval["precision"] == -1, np.nan, tools.eval["precision"])[..., 0, 0]  # (10, 101, C)
    if np.isnan(precision).all():
        assert math.isnan(metrics.ap)
        return
    per_class = precision.mean(axis=1)
    assert metrics.ap == pytest.approx(np.nanmean(per_class), abs=1e-9)
    assert metrics.ap50 == pytest.approx(np.nanmean(per_class[0]), abs=1e-9)
    assert metrics.ap75 == pytest.approx(np.nanmean(per_class[5]), abs=1e-9)
    np.testing.assert_allclose(metrics.per_class_ap, per_class.mean(axis=0), rtol=0, atol=1e-9)
    np.testing.assert_allclose(metrics.per_class_ap50, per_class[0], rtol=0, atol=1e-9)
    np.testing.assert_allclose(metrics.precision, precision[0], rtol=0, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), ignored=st.sampled_from([0.0, 0.4]))
def test_upright_boxes_equal_the_coco_tools(seed: int, ignored: float) -> None:
    case = random_case(seed, turn=0.0, ignored=ignored)
    metrics = evaluate_rotated(*case, num_classes=4)
    tools = coco_tools(case, COCOeval)
    assert_equal_to_the_tools(metrics, tools)
    if not ignored:  # else the tools name the score of an ignored detection
        scores = np.where(tools.eval["precision"] == -1, np.nan, tools.eval["scores"])[0, :, :, 0, 0]
        np.testing.assert_allclose(metrics.scores, scores, rtol=0, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), ignored=st.sampled_from([0.0, 0.4]))
def test_rotated_boxes_equal_the_coco_tools_on_polygons(seed: int, ignored: float) -> None:
    case = random_case(seed, turn=1.5, ignored=ignored)
    assert_equal_to_the_tools(evaluate_rotated(*case, num_classes=4), coco_tools(case, PolygonEval))


def test_the_random_cases_are_not_trivial() -> None:
    values = [evaluate_rotated(*random_case(seed, turn=1.5, ignored=0.4), num_classes=4).ap for seed in range(5)]
    assert all(0.1 < value < 0.9 for value in values)


def test_average_precision_by_hand() -> None:
    truth = objects((20, 20, 20, 6, 0.7, 0), (80, 60, 40, 10, -0.5, 0))
    detections = found(
        (20, 20, 20, 6, 0.7, 0.9, 0),
        (80, 60, 40, 10, -0.5 + math.pi / 2, 0.8, 0),  # the same sides, turned away: IoU 100 / 700
        (80, 60, 10, 40, -0.5 + math.pi / 2, 0.7, 0),  # the same rectangle in another encoding
    )
    metrics = evaluate_rotated([truth], [detections], num_classes=1)
    expected = (51 + 50 * 2 / 3) / 101  # precision 1 up to recall 0.5, 2/3 from there on
    assert (metrics.ap, metrics.ap50, metrics.ap75) == pytest.approx((expected,) * 3, abs=1e-9)
    assert metrics.precision[[0, 50, 51, 100], 0] == pytest.approx([1, 1, 2 / 3, 2 / 3], abs=1e-9)
    assert metrics.scores[[0, 50, 51, 100], 0] == pytest.approx([0.9, 0.9, 0.7, 0.7], abs=1e-6)
    assert metrics.recall_points.tolist() == [i / 100 for i in range(101)]
    assert (metrics.images, metrics.detections, metrics.invalid) == (1, 3, 0)


def test_a_recall_of_whole_hundredths_reaches_its_point() -> None:
    """57 of 100 objects: float32 recall points, or multiples of 0.01, are a bit above some of the hundredths."""
    rows = [(20.0 * i, 20.0, 10.0, 5.0, 0.3, 0) for i in range(100)]
    for hits in (29, 57, 58):
        metrics = evaluate_rotated(
            [objects(*rows)], [found(*((*row[:5], 0.5, 0) for row in rows[:hits]))], num_classes=1
        )
        assert metrics.ap == pytest.approx((hits + 1) / 101)


def test_overlap_decides_the_thresholds_passed() -> None:
    truth = objects((50, 50, 100, 10, 0, 0))
    for shift, passed in ((0.0, 10), (25.0, 3)):  # IoU 75 / 125 = 0.6 exactly: passes 0.50, 0.55 and 0.60
        metrics = evaluate_rotated([truth], [found((50 + shift, 50, 100, 10, 0, 0.5, 0))], num_classes=1)
        assert metrics.ap == pytest.approx(passed / 10)
    assert (metrics.ap50, metrics.ap75) == (1.0, 0.0)


def test_perfect_detections_in_any_encoding() -> None:
    truths, _ = random_case(1, turn=3.0, ignored=0.3)
    detections = [
        RotatedDetections(
            (truth.boxes[:, [0, 1, 3, 2, 4]] + [0, 0, 0, 0, math.pi / 2]).astype(np.float32),
            np.full(len(truth.boxes), 0.9, np.float32),
            truth.classes,
        )
        for truth in truths
    ]
    metrics = evaluate_rotated(truths, detections, num_classes=4)
    assert (metrics.ap, metrics.ap50, metrics.best_f1) == (1.0, 1.0, 1.0)
    assert np.array_equal(metrics.confusion, np.diag([*metrics.curves.objects, 0]))


def test_an_ignored_object_counts_neither_way_and_only_once() -> None:
    hit, hard = (20, 20, 20, 10, 0.5, 0), (70, 70, 30, 10, 1.0, 0)
    truth = objects(hit, hard, ignored=[1])
    on_hard, on_hit = (*hard[:5], 0.9, 0), (*hit[:5], 0.5, 0)

    def score(*rows: tuple[float, ...]) -> DetectionMetrics:
        return evaluate_rotated([truth], [found(*rows)], num_classes=1)

    assert score(on_hit).ap == 1.0  # it need not be found
    metrics = score(on_hard, on_hit)
    assert metrics.ap == 1.0
    assert (metrics.curves.true_positives[0, 0], metrics.curves.false_positives[0, 0]) == (1, 0)
    assert metrics.curves.objects.tolist() == [1]
    assert metrics.confusion.tolist() == [[1, 0], [0, 0]]
    assert score(on_hard, on_hard, on_hit).ap == pytest.approx(0.5)  # unlike a crowd
    assert score((*hard[:5], 0.9, 0)).ap == 0.0


def test_an_object_that_counts_is_preferred_to_an_ignored_one() -> None:
    truth = objects((50, 50, 100, 10, 0, 0), (70, 50, 100, 10, 0, 0), ignored=[1])
    detection = (65, 50, 100, 10, 0, 0.5, 0)  # IoU 85 / 115 = 0.74 with the first, 95 / 105 = 0.90 with the second
    metrics = evaluate_rotated([truth], [found(detection)], num_classes=1)
    assert metrics.ap == pytest.approx(0.5)  # right from 0.50 to 0.70; from 0.75 on it counts neither way
    assert metrics.confusion.tolist() == [[1, 0], [0, 0]]


def test_of_equal_overlaps_the_last_object_is_taken_as_in_the_coco_tools() -> None:
    left, right = (44, 50, 24, 8, 0, 0), (56, 50, 24, 8, 0, 0)
    detections = [found((50, 50, 24, 8, 0, 0.9, 0), (*left[:5], 0.8, 0))]  # the first has IoU 18 / 30 with both
    for truth, expected in ((objects(left, right), 1.0), (objects(right, left), 51 / 101)):
        metrics = evaluate_rotated([truth], detections, num_classes=1)
        assert metrics.ap50 == pytest.approx(expected)
        assert_equal_to_the_tools(metrics, coco_tools(([truth], detections), COCOeval, num_classes=1))


def test_classes_without_objects_that_count_do_not_enter_the_mean() -> None:
    truth = objects((20, 20, 20, 10, 0.5, 1), (60, 60, 20, 10, 0.5, 2), ignored=[1])
    detections = found((20, 20, 20, 10, 0.5, 0.5, 1), (90, 90, 20, 10, 0, 0.9, 0), (90, 90, 20, 10, 0, 0.9, 2))
    metrics = evaluate_rotated([truth], [detections], num_classes=3)
    assert metrics.ap == 1.0
    assert np.isnan(metrics.per_class_ap).tolist() == [True, False, True]
    assert np.isnan(metrics.precision[:, 0]).all()
    assert np.isnan(metrics.scores[:, 2]).all()


def test_no_detection_is_zero_and_no_object_is_nan() -> None:
    metrics = evaluate_rotated([objects((20, 20, 20, 10, 0.5, 0)), objects()], [found(), found()], num_classes=2)
    assert (metrics.ap, metrics.ap50, metrics.ap75, metrics.best_f1) == (0.0, 0.0, 0.0, 0.0)
    assert metrics.confusion.tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 0]]
    for case in (([objects()], [found((20, 20, 20, 10, 0.5, 0.5, 0))]), ([], [])):
        metrics = evaluate_rotated(*case, num_classes=2)
        assert math.isnan(metrics.ap)
        assert metrics.as_dict(("a", "b"))["ap"] is None


def test_only_the_best_detections_of_an_image_are_evaluated() -> None:
    truth = objects((20, 20, 20, 10, 0.5, 0))
    rows = [(60.0 + i, 60.0, 4.0, 4.0, 0.0, 0.9, 0) for i in range(300)]
    hit = (20, 20, 20, 10, 0.5, 0.5, 0)
    metrics = evaluate_rotated([truth, objects()], [found(hit, *rows), found(hit)], num_classes=1)
    assert (metrics.ap, metrics.detections) == (0.0, 301)
    assert evaluate_rotated([truth], [found(hit, *rows)], num_classes=1, limit=301).ap == pytest.approx(1 / 301)
    assert evaluate_rotated([truth], [found(hit, *rows[:299])], num_classes=1).ap == pytest.approx(1 / 300)


@pytest.mark.parametrize("column", range(6))
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_not_finite_is_counted_and_matches_nothing(column: int, value: float) -> None:
    box = (20.0, 20.0, 20.0, 10.0, 0.5)
    broken = [*box, 0.9, 0]
    broken[column] = value
    metrics = evaluate_rotated([objects((*box, 0))], [found(tuple(broken))], num_classes=1)
    assert (metrics.ap, metrics.invalid, metrics.detections) == (0.0, 1, 0)
    metrics = evaluate_rotated([objects((*box, 0))], [found(tuple(broken), (*box, 0.5, 0))], num_classes=1)
    assert (metrics.ap, metrics.invalid, metrics.detections) == (1.0, 1, 1)


def test_counts_by_confidence_equal_evaluations_of_what_is_kept() -> None:
    truths, detections = random_case(3, turn=1.5, ignored=0.3)
    curves = evaluate_rotated(truths, detections, num_classes=4).curves
    for confidence in (0.0, 0.3, 0.45, 0.9):
        at = round(confidence * 1000)
        kept = [one.above(curves.confidences[at]) for one in detections]
        again = evaluate_rotated(truths, kept, num_classes=4).curves
        assert curves.true_positives[at].tolist() == again.true_positives[0].tolist()
        assert curves.false_positives[at].tolist() == again.false_positives[0].tolist()


def test_confusion_by_hand() -> None:
    truth = objects(
        (20, 20, 20, 10, 0.5, 0),
        (60, 20, 20, 10, 0.5, 1),
        (20, 60, 20, 10, 0.5, 1),
        (60, 60, 20, 10, 0.5, 0),
        ignored=[3],
    )
    detections = found(
        (20, 20, 20, 10, 0.5, 0.9, 0),  # right
        (60, 20, 20, 10, 0.5, 0.9, 0),  # a 1 taken for a 0; the other 1 is missed
        (60, 60, 20, 10, 0.5, 0.9, 0),  # on the ignored object
        (60, 60, 20, 10, 0.5, 0.9, 1),  # on the ignored object, of another class: background
        (95, 95, 20, 10, 0.5, 0.9, 1),  # on nothing
        (95, 95, 20, 10, 0.5, 0.1, 1),  # below the best confidence
    )
    metrics = evaluate_rotated([truth], [detections], num_classes=2)
    assert metrics.best_confidence > 0.1
    assert metrics.confusion.tolist() == [[1, 0, 0], [1, 0, 1], [0, 2, 0]]


def test_report_holds_plain_numbers() -> None:
    truths, detections = random_case(4, turn=1.0, ignored=0.2)
    metrics = evaluate_rotated(truths, detections, num_classes=4)
    report = json.loads(json.dumps(metrics.as_dict(("a", "b", "c", "d")), allow_nan=False))
    assert (report["ap"], report["ap50"], report["ap75"]) == (metrics.ap, metrics.ap50, metrics.ap75)
    assert report["objects"] == sum(int((~truth.ignored).sum()) for truth in truths)
    assert report["classes"][3] == {
        "name": "d", "objects": 0, "precision": 0.0, "recall": None, "ap": None, "ap50": None,
    }  # fmt: skip


def test_input_must_fit() -> None:
    truth = objects((20, 20, 20, 10, 0.5, 0))
    with pytest.raises(ValueError, match="detections of 2 images, but labels of 1"):
        evaluate_rotated([truth], [found(), found()], num_classes=1)
    with pytest.raises(ValueError, match="a detection of class 1 in image 0, but there are classes 0 to 0"):
        evaluate_rotated([truth], [found((20, 20, 20, 10, 0.5, 0.5, 1))], num_classes=1)
    with pytest.raises(ValueError, match="an object of class -1 in image 1, but there are classes 0 to 0"):
        evaluate_rotated([truth, objects((20, 20, 20, 10, 0.5, -1))], [found(), found()], num_classes=1)


@given(st.integers(0, 10_000))
def test_matching_without_ignored_objects_equals_the_single_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    overlap = rng.random(rng.integers(0, 7, 2))
    thresholds = np.array([0.2, 0.5, 0.8])
    partner = match_by_score_at(overlap, np.zeros(overlap.shape[1], bool), thresholds)
    for found_at, threshold in zip(partner, thresholds.tolist(), strict=True):
        assert found_at.tolist() == match_by_score(overlap, threshold=threshold).tolist()
