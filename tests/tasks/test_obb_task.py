"""Oriented boxes from raw predictions to scores: sorts and slow suppression, perfect predictions, an overfit."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from lucid_yolo.config.compose import compose, to_root
from lucid_yolo.config.schema import ModelConfig
from lucid_yolo.config.tasks import ObbTaskConfig, TaskName
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import LabelKind, LabelSpec
from lucid_yolo.data.labels.corners import CornerLabels
from lucid_yolo.losses.detection import stack_outputs
from lucid_yolo.losses.rotated import RotatedLoss
from lucid_yolo.nn.predictions import ObbBranch, ObbPredictions
from lucid_yolo.ops.anchors import Anchors, make_anchors
from lucid_yolo.ops.letterbox import letterbox_for
from lucid_yolo.ops.rotated_iou import rotated_iou
from lucid_yolo.ops.rotated_np import corners, envelopes, from_corners
from lucid_yolo.tasks import get_task
from lucid_yolo.tasks.obb.decode import RotatedRows, decode_one_to_many, decode_one_to_one, to_detections
from tests.assign.test_rotated_candidates import make_targets
from tests.ops.rotated_boxes import Rotated, polygon_iou, vertices
from tests.tasks.splits import make_val_split

SIZE, CLASSES = 96, 3
ANCHORS = make_anchors(SIZE, (8, 16, 32))
NANO = ModelConfig(variant="n", depth=0.5, width=0.25, max_channels=1024)
SIZES = [(96, 96), (192, 96), (40, 81)]
OBJECTS: list[list[tuple[Rotated, int]]] = [
    [((30.0, 40.0, 40.0, 16.0, 0.4), 0), ((70.0, 75.0, 20.0, 20.0, 0.7), 2)],
    [((90.0, 40.0, 24.0, 110.0, 1.2), 1), ((186.0, 30.0, 40.0, 20.0, -0.3), 0)],  # the second reaches out
    [((20.0, 40.0, 12.0, 36.0, 2.0), 2), ((22.0, 30.0, 30.0, 11.0, 0.1), 0)],
]


def make_branch(seed: int, anchors: Anchors) -> ObbBranch:
    generator = torch.Generator().manual_seed(seed)
    shape = (2, len(anchors))
    return ObbBranch(
        torch.rand(*shape, 4, generator=generator) * 2 + 0.1,
        torch.randn(*shape, CLASSES, generator=generator) * 2,
        torch.randn(*shape, generator=generator) * 2,
    )


def candidates(branch: ObbBranch, image: int, anchors: Anchors) -> list[tuple[float, int, Rotated]]:
    """(score, class, box) of each anchor, in Python, best first."""
    found = []
    for a, ((x, y), s) in enumerate(zip(anchors.centers.tolist(), anchors.strides.tolist(), strict=True)):
        left, top, right, bottom = branch.distances[image, a].tolist()
        probabilities = branch.logits[image, a].sigmoid().tolist()
        best = max(range(CLASSES), key=lambda c: probabilities[c])
        middle = (x + (right - left) / 2 * s, y + (bottom - top) / 2 * s)
        box = (*middle, (left + right) * s, (top + bottom) * s, branch.angles[image, a].item())
        found.append((probabilities[best], best, box))
    return sorted(found, key=lambda one: -one[0])


def assert_rows(rows: RotatedRows, expected: list[tuple[float, int, Rotated]]) -> None:
    np.testing.assert_allclose(rows.scores, [e[0] for e in expected], rtol=1e-5)
    assert rows.classes.tolist() == [e[1] for e in expected]
    np.testing.assert_allclose(rows.boxes, np.array([e[2] for e in expected]).reshape(-1, 5), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("limit", [1, 20, 300])
def test_one_to_one_is_the_head_of_a_sort(limit: int) -> None:
    branch = make_branch(0, ANCHORS)
    for image, rows in enumerate(decode_one_to_one(branch, ANCHORS, limit=limit)):
        assert_rows(rows, candidates(branch, image, ANCHORS)[:limit])


@pytest.mark.parametrize(("confidence", "limit"), [(0.001, 300), (0.6, 300), (0.001, 7)])
def test_one_to_many_is_greedy_suppression_by_polygons(confidence: float, limit: int) -> None:
    anchors = make_anchors(32, (8, 16, 32))
    branch = make_branch(1, anchors)
    for image, rows in enumerate(decode_one_to_many(branch, anchors, confidence=confidence, iou=0.3, limit=limit)):
        kept: list[tuple[float, int, Rotated]] = []
        for one in candidates(branch, image, anchors):
            free = all(k[1] != one[1] or polygon_iou(k[2], one[2]) <= 0.3 for k in kept)
            if one[0] > confidence and free:
                kept.append(one)
        assert_rows(rows, kept[:limit])


def test_half_precision_decodes_in_float32() -> None:
    branch = ObbBranch(*(tensor.bfloat16() for tensor in make_branch(2, ANCHORS)))
    widened = ObbBranch(*(tensor.float() for tensor in branch))
    with torch.autocast("cpu", torch.bfloat16):
        found = decode_one_to_one(branch, ANCHORS)
    for mine, other in zip(found, decode_one_to_one(widened, ANCHORS), strict=True):
        np.testing.assert_array_equal(mine.boxes, other.boxes)


@pytest.mark.parametrize(("width", "height"), [(64, 64), (200, 90), (31, 47)])
def test_boxes_come_back_to_the_picture_at_their_angles(width: int, height: int) -> None:
    letterbox = letterbox_for(width, height, 64)
    truth = np.array([[width * 0.5, height * 0.4, width * 0.4, height * 0.2, 2.1], [0.0, 5.0, 12.0, 6.0, 0.3]])
    canvas = from_corners(letterbox.points_to_canvas(corners(truth)))
    rows = RotatedRows(canvas.astype(np.float32), np.array([0.9, 0.4], np.float32), np.array([2, 0]))
    (found,) = to_detections([rows], [letterbox])
    assert found.rotated is not None
    assert found.rotated.dtype == found.boxes.dtype == np.float32
    assert np.diag(rotated_iou(found.rotated, truth)).min() > 0.97  # rounding of the scaled size shears a little
    assert (found.rotated[:, 2] >= found.rotated[:, 3]).all()
    np.testing.assert_allclose(found.boxes, np.clip(envelopes(found.rotated), 0, [width, height] * 2), atol=1e-4)
    assert found.boxes[1, 0] == 0
    assert envelopes(found.rotated)[1, 0] < 0
    assert found.classes.tolist() == [2, 0]


def test_what_cannot_be_a_detection_goes() -> None:
    good = [20.0, 20.0, 8.0, 6.0, 0.5]
    boxes = [
        good,
        [np.nan, *good[1:]],
        [*good[:2], -3.0, 4.0, 0.0],
        [*good[:2], 3.0, 0.0, 0.0],
        [200.0, *good[1:]],
        good,
    ]
    scores = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.0], np.float32)
    rows = RotatedRows(np.array(boxes, np.float32), scores, np.arange(6))
    (found,) = to_detections([rows], [letterbox_for(64, 64, 64)])
    assert found.classes.tolist() == [0]
    (none,) = to_detections([rows.take(np.zeros(0, np.int64))], [letterbox_for(64, 64, 64)])
    assert none.rotated is not None
    assert none.rotated.shape == (0, 5)


# the task


def make_index() -> SplitIndex:
    rows = [row for image in OBJECTS for row in image]
    quadrilaterals = np.array([vertices(box) for box, _ in rows])
    boxes = np.concatenate((quadrilaterals.min(1), quadrilaterals.max(1)), 1).astype(np.float32)
    return make_val_split(
        boxes,
        [label for _, label in rows],
        counts=[len(image) for image in OBJECTS],
        sizes=SIZES,
        areas=np.ones(len(rows), np.float32),
        labels=CornerLabels(quadrilaterals),
    )


def perfect_predictions(*, turn: float = 0.0) -> ObbPredictions:
    """Each object once, at some anchor, and nothing elsewhere."""
    distances = torch.full((3, len(ANCHORS), 4), 0.1)
    logits, angles = torch.full((3, len(ANCHORS), CLASSES), -12.0), torch.zeros(3, len(ANCHORS))
    for image, objects in enumerate(OBJECTS):
        letterbox = letterbox_for(*SIZES[image], SIZE)
        for i, (box, label) in enumerate(objects):
            a = 40 + 7 * i
            points = letterbox.points_to_canvas(np.array([vertices(box)]))
            x, y, width, height, theta = from_corners(points)[0].tolist()
            (ax, ay), s = ANCHORS.centers[a].tolist(), float(ANCHORS.strides[a])
            reach = torch.tensor([width / 2 - x + ax, height / 2 - y + ay, width / 2 + x - ax, height / 2 + y - ay])
            distances[image, a], angles[image, a], logits[image, a, label] = reach / s, theta + turn, 4.0
    branch = ObbBranch(distances, logits, angles)
    return ObbPredictions(branch, branch)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("turn", [0.0, math.pi, -3 * math.pi])
def test_perfect_predictions_score_one(which: int, turn: float) -> None:
    task, index = get_task(TaskName.OBB), make_index()
    letterboxes = [letterbox_for(*size, SIZE) for size in SIZES]
    detections = task.decode(task.decoders[which], perfect_predictions(turn=turn), letterboxes, SIZE)
    values = task.metric_values(task.evaluate(index, detections))
    assert task.metric_values(task.score(index, detections)) == values
    assert values == {"rotated_ap": pytest.approx(1.0), "rotated_ap50": pytest.approx(1.0)}
    assert tuple(values) == task.metric_names
    assert task.primary in values
    assert task.evaluate(index, {1: detections[1]}).main.ap < 0.7  # images may be absent


def test_a_wrong_angle_costs_the_score() -> None:
    task, index = get_task(TaskName.OBB), make_index()
    letterboxes = [letterbox_for(*size, SIZE) for size in SIZES]
    detections = task.decode(task.decoders[0], perfect_predictions(turn=0.5), letterboxes, SIZE)
    assert task.metric_values(task.evaluate(index, detections))["rotated_ap"] < 0.5


def test_ignored_objects_need_not_be_found() -> None:
    task, index = get_task(TaskName.OBB), make_index()
    letterboxes = [letterbox_for(*size, SIZE) for size in SIZES]
    predictions = perfect_predictions()
    predictions.one_to_one.logits[0, 40] = -12.0  # the first object is not found ...
    found = task.decode(task.decoders[0], predictions, letterboxes, SIZE)
    assert task.evaluate(index, found).main.ap < 0.95
    index.crowd[0] = True  # ... and is to be ignored
    assert task.evaluate(index, found).main.ap == pytest.approx(1.0)


def test_the_configuration_has_settings_of_its_own() -> None:
    task, config = get_task(TaskName.OBB), to_root(compose(["task=obb", "task.loss.angle=0.5"])).task
    assert isinstance(config, ObbTaskConfig)
    assert (task.name, task.labels) == (TaskName.OBB, LabelKind.CORNERS)
    loss = task.build_loss(config, LabelSpec(CLASSES), SIZE)
    assert isinstance(loss, RotatedLoss)
    assert dict(zip(task.part_names, loss.gains.flatten().tolist(), strict=True)) == {
        "box": 7.5, "cls": 0.5, "l1": 1.5, "angle": 0.5
    }  # fmt: skip
    assert len(task.class_rows(task.build_model(NANO, LabelSpec(CLASSES)))) == 12
    assert "angle" not in compose(["task=detect"]).task.loss


def test_model_and_loss_overfit_two_pictures() -> None:
    torch.manual_seed(0)
    task, size = get_task(TaskName.OBB), 64
    model = task.build_model(NANO, LabelSpec(CLASSES))
    loss = task.build_loss(ObbTaskConfig(name=TaskName.OBB), LabelSpec(CLASSES), size)
    assert isinstance(loss, RotatedLoss)
    task.set_epoch(loss, 4, 10)
    images = torch.rand(2, 3, size, size)
    boxes: list[Rotated] = [(24.0, 28.0, 40.0, 16.0, 0.5), (40.0, 36.0, 44.0, 20.0, 2.0), (16.0, 14.0, 20.0, 18.0, 0.0)]
    targets = make_targets([(0, 0, boxes[0]), (1, 2, boxes[1]), (1, 1, boxes[2])], 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(60):  # 0.75 and more, of three seeds
        predictions = model(images)
        losses = loss(predictions, targets)
        optimizer.zero_grad()
        losses.total.backward()
        optimizer.step()
    assert losses.parts.shape == (len(task.part_names),)
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    assignment = loss.assign(ObbBranch(*stack_outputs(*predictions)), targets)
    decoded = decode_one_to_one(
        ObbBranch(*(tensor.detach() for tensor in predictions.one_to_one)), make_anchors(size, (8, 16, 32))
    )
    for row, (image, label) in enumerate([(0, 0), (1, 2), (1, 1)]):
        for branch in range(2):  # the best anchor of an object weighs the overlap of the envelopes
            assert assignment.weight[branch][assignment.positive[branch] & (assignment.row[branch] == row)].max() > 0.6
        found = decoded[image]
        best = found.boxes[found.classes == label][:1]
        assert rotated_iou(best, np.array([boxes[row]])).item() > 0.6
