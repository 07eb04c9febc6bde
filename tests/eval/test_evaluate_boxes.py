"""Box AP against hand calculation and against pycocotools called directly on files."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from pycocotools.coco import COCO

from lucid_yolo.config.schema import DataConfig
from lucid_yolo.data.readers import read_split
from lucid_yolo.eval.coco import evaluate_boxes, score_boxes
from lucid_yolo.eval.results import to_coco_json
from tests.eval.coco_files import evaluate_files, export_truth, numbers, perfect, read_coco


def test_average_precision_by_hand(make_split, make_detections):
    index = make_split([[(0, 0, 10, 10, 0), (50, 0, 90, 50, 0)]])
    found = make_detections([(0, 0, 10, 10, 0.9, 0), (100, 60, 120, 80, 0.8, 0), (50, 0, 90, 50, 0.7, 0)])
    metrics = evaluate_boxes(index, [found])
    # precision 1 up to recall 0.5 (51 of the 101 recall points), 2/3 from there on (50 points)
    expected = (51 + 50 * 2 / 3) / 101
    assert metrics.ap == pytest.approx(expected, abs=1e-9)
    assert metrics.ap50 == pytest.approx(expected, abs=1e-9)
    assert metrics.per_class_ap50.tolist() == [pytest.approx(expected, abs=1e-9)]
    assert metrics.ar1 == 0.5  # one detection an image
    assert metrics.ar100 == 1.0
    assert metrics.ap_small == pytest.approx(1.0)  # 10 x 10: found first
    assert math.isnan(metrics.ap_large)
    assert metrics.precision[[0, 50, 51, 100], 0] == pytest.approx([1, 1, 2 / 3, 2 / 3], abs=1e-9)
    assert metrics.scores[[0, 50, 51, 100], 0] == pytest.approx([0.9, 0.9, 0.7, 0.7], abs=1e-6)
    # F1 is 2/3 with one detection kept, 1/2 with two and 4/5 with all three
    assert [float(values[0]) for values in metrics.precision_and_recall()] == pytest.approx([2 / 3, 1.0])


def test_overlap_decides_the_thresholds_passed(make_split, make_detections):
    index = make_split([[(0, 0, 100, 10, 0)]])
    metrics = evaluate_boxes(index, [make_detections([(0, 0, 62, 10, 0.5, 0)])])  # IoU 0.62: passes 0.50, 0.55, 0.60
    assert metrics.ap == pytest.approx(0.3)
    assert (metrics.ap50, metrics.ap75) == pytest.approx((1.0, 0.0))


def test_detection_on_a_crowd_counts_neither_way(make_split, make_detections):
    index = make_split([[(0, 0, 20, 20, 0), (100, 0, 200, 100, -1)]])
    on_crowd, on_nothing = (120, 20, 140, 40, 0.9, 0), (50, 50, 70, 70, 0.9, 0)
    hit = (0, 0, 20, 20, 0.5, 0)
    assert evaluate_boxes(index, [make_detections([on_crowd, hit])]).ap == pytest.approx(1.0)
    assert evaluate_boxes(index, [make_detections([on_nothing, hit])]).ap == pytest.approx(0.5)
    curves = evaluate_boxes(index, [make_detections([on_crowd, hit])]).curves
    assert (curves.true_positives[0, 0], curves.false_positives[0, 0], curves.objects[0]) == (1, 0, 1)


def test_no_detection_is_zero_and_no_object_is_nan(make_split, make_detections):
    empty = make_detections([])
    index = make_split([[(0, 0, 10, 10, 0)], []], 2)
    for nothing in ([empty, empty], {}, {1: empty}):
        metrics = evaluate_boxes(index, nothing)
        assert (metrics.ap, metrics.ap50, metrics.ar100) == (0.0, 0.0, 0.0)
        assert metrics.per_class_ap[0] == 0.0
        assert math.isnan(metrics.per_class_ap[1])
        assert np.isnan(metrics.precision[:, 1]).all()
    metrics = evaluate_boxes(make_split([[], []], 2), [empty, make_detections([(0, 0, 5, 5, 0.5, 1)])])
    assert math.isnan(metrics.ap)
    assert metrics.as_dict(("a", "b"))["ap"] is None
    assert metrics.best_f1 == 0.0


def test_class_without_objects_does_not_enter_the_mean(make_split, make_detections):
    index = make_split([[(0, 0, 10, 10, 1)]], 3)
    metrics = evaluate_boxes(index, [make_detections([(0, 0, 10, 10, 0.5, 1), (20, 20, 30, 30, 0.9, 2)])])
    assert metrics.ap == pytest.approx(1.0)
    assert np.isnan(metrics.per_class_ap).tolist() == [True, False, True]


def test_prints_nothing_and_leaves_print_alone(capfd, random_case):
    index, found = random_case(0)
    evaluate_boxes(index, found)
    assert capfd.readouterr() == ("", "")
    COCO().createIndex()
    assert "index created" in capfd.readouterr().out


def test_non_finite_detections_are_left_out(make_split, make_detections):
    index = make_split([[(0, 0, 10, 10, 0)]])
    bad = make_detections([(math.nan, 0, 10, 10, 0.9, 0), (0, 0, 10, 10, math.nan, 0), (0, 0, math.inf, 10, 0.8, 0)])
    metrics = evaluate_boxes(index, [bad])
    assert metrics.ap == 0.0  # fed to the COCO tools as it is, the first one matches at every threshold
    assert metrics.invalid == 3


@pytest.mark.parametrize("seed", range(4))
def test_equal_to_the_coco_tools_on_exported_files(tmp_path, random_case, seed):
    index, found = random_case(seed)
    export_truth(index, tmp_path / "truth.json")
    (tmp_path / "found.json").write_text(json.dumps(to_coco_json(index, found)))
    expected = evaluate_files(tmp_path / "truth.json", tmp_path / "found.json")
    assert 0.05 < expected[0] < 0.95
    assert numbers(evaluate_boxes(index, found)) == pytest.approx(expected[:9], abs=1e-6)
    as_mapping = {i: detections for i, detections in enumerate(found) if len(detections)}
    assert numbers(evaluate_boxes(index, as_mapping)) == pytest.approx(expected[:9], abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_scores_over_all_areas_are_those_of_the_whole_evaluation(random_case, seed):
    index, found = random_case(seed)
    whole, scores = evaluate_boxes(index, found), score_boxes(index, found)
    assert (scores.ap, scores.ap50, scores.ap75) == (whole.ap, whole.ap50, whole.ap75)  # to the last bit
    assert np.array_equal(scores.confusion, whole.confusion)
    assert np.array_equal(scores.precision, whole.precision, equal_nan=True)
    assert np.array_equal(scores.curves.true_positives, whole.curves.true_positives)
    assert np.array_equal(scores.curves.false_positives, whole.curves.false_positives)


def test_export_uses_the_ids_of_the_data_set(make_split, make_detections):
    index = make_split([[], []], 2, image_ids=(508, 71), category_ids=(90, 3))
    records = to_coco_json(index, {1: make_detections([(1, 2, 11, 22, 0.5, 0)])})
    assert records == [{"image_id": 71, "category_id": 90, "bbox": [1.0, 2.0, 10.0, 20.0], "score": 0.5}]


@pytest.mark.parametrize("file", ["bccd/converted/instances_val.json", "coco_open/annotations/instances_val2017.json"])
def test_perfect_detections_of_real_data(test_data, file):
    index = read_coco(test_data / file)
    metrics = evaluate_boxes(index, perfect(index))
    assert metrics.ap == pytest.approx(1.0, abs=1e-9)
    assert metrics.ar100 == pytest.approx(1.0, abs=1e-9)
    assert metrics.best_f1 == 1.0
    assert metrics.best_confidence == pytest.approx(0.45, abs=1e-3)  # every threshold from 0 to 0.9 is as good


@pytest.mark.parametrize(
    ("root", "train", "val", "images"),
    [
        ("bccd", "converted/instances_train.json", "converted/instances_val.json", ("JPEGImages", "JPEGImages")),
        (
            "coco_open",
            "annotations/instances_train2017.json",
            "annotations/instances_val2017.json",
            ("images/train2017", "images/val2017"),
        ),
    ],
)
def test_perfect_detections_of_a_split_as_the_project_reads_it(test_data, root, train, val, images):
    folder = test_data / root
    config = DataConfig(
        format="coco",
        root=str(folder),
        train=str(folder / train),
        val=str(folder / val),
        train_images=str(folder / images[0]),
        val_images=str(folder / images[1]),
    )
    index = read_split(config, "val")
    metrics = evaluate_boxes(index, perfect(index))
    assert metrics.ap == pytest.approx(1.0, abs=1e-9)
    assert np.array_equal(metrics.confusion, np.diag(np.append(metrics.curves.objects, 0)))


def test_equal_to_the_coco_tools_on_a_real_annotation_file(test_data, tmp_path):
    """Against the untouched file: crowds as RLE, mask areas, category ids with gaps."""
    truth = test_data / "coco_open/annotations/instances_val2017.json"
    index = read_coco(truth)
    rng = np.random.default_rng(5)
    found = [
        replace(
            exact,
            boxes=(exact.boxes + rng.normal(0, 4, exact.boxes.shape)).astype(np.float32),
            scores=rng.random(len(exact)).astype(np.float32),
        )
        for exact in perfect(index)
    ]
    (tmp_path / "found.json").write_text(json.dumps(to_coco_json(index, found)))
    expected = evaluate_files(truth, tmp_path / "found.json")
    assert 0.1 < expected[0] < 0.9
    assert numbers(evaluate_boxes(index, found)) == pytest.approx(expected[:9], abs=1e-6)


def test_counts_by_confidence_equal_a_loop(random_case):
    index, found = random_case(3)
    curves = evaluate_boxes(index, found).curves
    for confidence in (0.0, 0.3, 0.45, 0.9):
        at = round(confidence * 1000)
        kept = [detections.above(curves.confidences[at]) for detections in found]
        # at IoU 0.5 and with every detection kept, recall and precision at the threshold are those of the lowest score
        again = evaluate_boxes(index, kept).curves
        assert curves.true_positives[at].tolist() == again.true_positives[0].tolist()
        assert curves.false_positives[at].tolist() == again.false_positives[0].tolist()


def test_curves_by_hand(make_split, make_detections):
    index = make_split([[(0, 0, 10, 10, 0), (50, 0, 90, 50, 0)]])
    found = make_detections([(0, 0, 10, 10, 0.9, 0), (100, 60, 120, 80, 0.6, 0), (50, 0, 90, 50, 0.3, 0)])
    curves = evaluate_boxes(index, [found]).curves
    at = [100, 500, 800, 950]  # confidences 0.1, 0.5, 0.8, 0.95
    assert curves.recall()[at, 0].tolist() == [1.0, 0.5, 0.5, 0.0]
    assert curves.precision()[at[:3], 0].tolist() == [2 / 3, 0.5, 1.0]
    assert math.isnan(curves.precision()[950, 0])
    assert curves.f1()[at, 0] == pytest.approx([0.8, 0.5, 2 / 3, 0.0])
    assert curves.best_confidence() == pytest.approx(0.15, abs=1e-3)  # F1 0.8 from 0 up to 0.3


def test_detections_must_fit_the_split(make_split, make_detections):
    index = make_split([[(0, 0, 10, 10, 0)]])
    with pytest.raises(ValueError, match="detections of 2 images, but by hand has 1"):
        evaluate_boxes(index, [make_detections([])] * 2)
    with pytest.raises(ValueError, match="detections of image 4"):
        evaluate_boxes(index, {4: make_detections([])})
    with pytest.raises(ValueError, match="a detection of class 1, but by hand has classes 0 to 0"):
        evaluate_boxes(index, [make_detections([(0, 0, 1, 1, 0.5, 1)])])
