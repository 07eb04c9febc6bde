"""Key point AP by hand and against the COCO tools called directly on files."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from pycocotools.cocoeval import Params

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import KeypointSpec
from lucid_yolo.eval.coco import IouType
from lucid_yolo.eval.keypoints import evaluate_keypoints, score_keypoints
from lucid_yolo.eval.metrics import KeypointMetrics
from lucid_yolo.eval.results import result_types, to_coco_json
from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.keypoints import UNIFORM_SIGMA
from tests.eval.coco_files import evaluate_files, export_truth, objects_of, perfect, read_coco

COCO_SIGMAS = tuple(Params("keypoints").kpt_oks_sigmas.tolist())


@dataclass(frozen=True)
class Points:
    """Labels with key points."""

    values: np.ndarray


def with_points(index: SplitIndex, points: np.ndarray, sigmas: tuple[float, ...] | None = None) -> SplitIndex:
    """Points (T, K, 3) x, y, visibility."""
    spec = KeypointSpec(tuple(f"p{i}" for i in range(points.shape[1])), (), None, sigmas)
    return replace(index, labels=Points(points.astype(np.float32)), keypoints=spec)


def numbers(metrics: KeypointMetrics) -> list[float]:
    """Those that the COCO tools have too, NaN as their -1."""
    names = ("ap", "ap50", "ap75", "ap_medium", "ap_large", "ar20")
    return [-1.0 if math.isnan(getattr(metrics, name)) else getattr(metrics, name) for name in names]


@pytest.fixture
def case(random_case):
    """Splits with crowds, empty images and ties; some points are not labelled, some objects have none."""

    def build(seed: int, number: int) -> tuple[SplitIndex, list[Detections]]:
        index, found = random_case(seed)
        rng = np.random.default_rng(seed)

        def inside(boxes: np.ndarray, noise: float) -> np.ndarray:
            shares = np.linspace(0.1, 0.9, number)[None, :, None] + rng.normal(
                0, noise * min(1, number / 5), (len(boxes), number, 2)
            )
            return boxes[:, None, :2] + shares * (boxes[:, 2:] - boxes[:, :2])[:, None]

        visibility = rng.choice([0, 1, 2], (len(index.boxes), number, 1)) * (rng.random((len(index.boxes), 1, 1)) < 0.8)
        index = with_points(index, np.concatenate([inside(index.boxes, 0), visibility], axis=2))
        pointed = [
            replace(
                one,
                keypoints=np.concatenate([inside(one.boxes, 0.06), rng.random((len(one), number, 1))], axis=2).astype(
                    np.float32
                ),
            )
            for one in found
        ]
        return index, pointed

    return build


def test_similarity_by_hand(make_split, make_detections):
    """Two points: one is exact, one is off by d; similarity is the mean of 1 and exp(-d^2 / (2 area (2 sigma)^2))."""
    truth = np.array([[[10, 10, 2], [30, 30, 1]]], float)
    index = with_points(make_split([[(0, 0, 40, 40, 0)]]), truth, (0.05, 0.1))
    boxes = make_detections([(0, 0, 40, 40, 0.9, 0)])
    for similarity, passed in ((0.62, 3), (0.79, 6), (0.96, 10), (0.51, 1)):
        distance = math.sqrt(-2 * 1600 * (2 * 0.1) ** 2 * math.log(2 * similarity - 1))
        found = replace(boxes, keypoints=np.array([[[10, 10, 0.5], [30 + distance, 30, 0.5]]], np.float32))
        assert evaluate_keypoints(index, [found]).main.ap == pytest.approx(passed / 10)


def test_object_without_points_is_ignored(make_split, make_detections):
    truth = np.zeros((2, 3, 3))
    truth[0] = [[10, 10, 2], [20, 20, 2], [5, 5, 0]]
    index = with_points(make_split([[(0, 0, 40, 40, 0), (100, 0, 140, 40, 0)]]), truth)
    exact, other = truth[0], np.tile([120.0, 20.0, 0.5], (3, 1))
    found = replace(
        make_detections([(100, 0, 140, 40, 0.9, 0), (0, 0, 40, 40, 0.5, 0)]),
        keypoints=np.stack([other, exact]).astype(np.float32),
    )
    metrics = evaluate_keypoints(index, [found])
    assert metrics.main.ap == pytest.approx(1.0)
    assert metrics.main.curves.objects.tolist() == [1]
    assert metrics.main.best_f1 == 1.0
    assert metrics.beside["box"].curves.objects.tolist() == [2]  # its box has to be found all the same
    assert metrics.main.confusion.tolist() == [[2, 0], [0, 0]]  # by boxes


@pytest.mark.parametrize(("seed", "number"), [(0, 17), (1, 5), (2, 1), (3, 23)])
@pytest.mark.parametrize("known", [True, False])
def test_equal_to_the_coco_tools_on_exported_files(tmp_path, case, seed, number, known):
    index, found = case(seed, number)
    if known:
        index = replace(index, keypoints=replace(index.keypoints, sigmas=tuple(np.linspace(0.02, 0.11, number))))
    sigmas = index.keypoints.sigmas or (UNIFORM_SIGMA,) * number
    further = [
        {"keypoints": one.ravel().tolist(), "num_keypoints": int((one[:, 2] > 0).sum())} for one in index.labels.values
    ]
    export_truth(index, tmp_path / "truth.json", further)
    assert result_types(found) == (IouType.KEYPOINTS, IouType.BOXES)
    (tmp_path / "found.json").write_text(json.dumps(to_coco_json(index, found, IouType.KEYPOINTS)))
    expected = evaluate_files(tmp_path / "truth.json", tmp_path / "found.json", "keypoints", sigmas=sigmas)
    assert 0.02 < expected[0] < 0.98
    metrics = evaluate_keypoints(index, found)
    assert numbers(metrics.main) == pytest.approx(expected[:6], abs=1e-6)
    over_all_areas = score_keypoints(index, found)
    assert over_all_areas.main.ap == metrics.main.ap  # to the last bit
    assert over_all_areas.beside["box"].ap == metrics.beside["box"].ap
    (tmp_path / "boxes.json").write_text(json.dumps(to_coco_json(index, found)))
    assert metrics.beside["box"].ap == pytest.approx(
        evaluate_files(tmp_path / "truth.json", tmp_path / "boxes.json")[0], abs=1e-6
    )
    assert tuple(Params("keypoints").kpt_oks_sigmas.tolist()) == COCO_SIGMAS  # nothing global has changed


def test_perfect_points_score_one(case):
    index, _ = case(4, 6)
    rows = [np.arange(len(index.crowd))[index.rows(i)] for i in range(len(index))]
    found = [
        replace(one, keypoints=index.labels.values[objects[~index.crowd[objects]]])
        for one, objects in zip(perfect(index), rows, strict=True)
    ]
    metrics = evaluate_keypoints(index, found).main
    assert metrics.ap == pytest.approx(1.0, abs=1e-9)
    assert metrics.ar20 == pytest.approx(1.0, abs=1e-9)
    assert metrics.as_dict(index.class_names)["ap_large"] is None or metrics.ap_large == pytest.approx(1.0)


def test_points_that_are_not_finite_are_left_out(make_split, make_detections):
    index = with_points(make_split([[(0, 0, 40, 40, 0)]]), np.array([[[10, 10, 2]]], float))
    found = replace(make_detections([(0, 0, 40, 40, 0.9, 0)]), keypoints=np.array([[[math.nan, 10, 0.5]]], np.float32))
    metrics = evaluate_keypoints(index, [found]).main
    assert metrics.ap == 0.0  # fed to the COCO tools as it is, it matches at every threshold
    assert metrics.invalid == 1


def test_what_cannot_be_compared_is_refused(make_split, make_detections):
    plain = make_split([[(0, 0, 10, 10, 0)]])
    index = with_points(plain, np.ones((1, 4, 3)))
    found = make_detections([(0, 0, 10, 10, 0.5, 0)])
    with pytest.raises(ValueError, match="by hand was read without key points"):
        evaluate_keypoints(plain, [found])
    with pytest.raises(ValueError, match="have 4 key points an object, and the detections have none"):
        evaluate_keypoints(index, [found])
    with pytest.raises(ValueError, match="have 4 key points an object, and the detections have 3"):
        evaluate_keypoints(index, [replace(found, keypoints=np.zeros((1, 3, 3), np.float32))])
    assert evaluate_keypoints(index, {}).main.ap == 0.0


def test_equal_to_the_coco_tools_on_a_real_annotation_file(test_data, tmp_path):
    truth = test_data / "coco_open/annotations/person_keypoints_val2017.json"
    points = np.array([row["keypoints"] for row in objects_of(json.loads(truth.read_text()))], float).reshape(-1, 17, 3)
    index = with_points(read_coco(truth), points, COCO_SIGMAS)
    rng = np.random.default_rng(5)
    found = []
    for image, exact in enumerate(perfect(index)):
        objects = np.arange(len(index.crowd))[index.rows(image)]
        moved = points[objects[~index.crowd[objects]]]
        sides = np.sqrt(index.areas[objects[~index.crowd[objects]]])[:, None, None]
        moved[..., :2] += rng.normal(0, 0.06, moved[..., :2].shape) * sides
        scores = rng.random(len(exact)).astype(np.float32)
        found.append(replace(exact, keypoints=moved.astype(np.float32), scores=scores))
    (tmp_path / "found.json").write_text(json.dumps(to_coco_json(index, found, IouType.KEYPOINTS)))
    expected = evaluate_files(truth, tmp_path / "found.json", "keypoints")
    assert 0.1 < expected[0] < 0.95
    assert numbers(evaluate_keypoints(index, found).main) == pytest.approx(expected[:6], abs=1e-6)
