"""The task as the engine uses it: perfect predictions as the check of decoding and scoring, and a step that learns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from lucid_yolo.config.compose import compose, to_root
from lucid_yolo.config.schema import ModelConfig
from lucid_yolo.config.tasks import KeypointTaskConfig, TaskName
from lucid_yolo.data.batch import Targets
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import KeypointSpec, LabelKind, LabelSpec, spec_without_data
from lucid_yolo.data.labels.keypoints import KeypointLabels
from lucid_yolo.losses.keypoints import KeypointLoss
from lucid_yolo.nn.predictions import KeypointBranch, KeypointPredictions
from lucid_yolo.ops.anchors import make_anchors
from lucid_yolo.ops.letterbox import letterbox_for
from lucid_yolo.optim.build import build_optimizer
from lucid_yolo.tasks import get_task
from tests.nn.networks import shorten
from tests.tasks.test_detect_task import CLASSES, SIZE, SIZES, make_index, perfect_predictions

NANO = ModelConfig(variant="n", depth=0.5, width=0.25, max_channels=1024)
SPEC = KeypointSpec(("a", "b", "c"), (), (0, 1, 2), None)
TASK = get_task(TaskName.KEYPOINTS)


def keypoint_index() -> SplitIndex:
    """Detection's pictures with three points inside of each box; the second of the first object is not labelled."""
    index = make_index()
    low, side = index.boxes[:, None, :2], (index.boxes[:, None, 2:] - index.boxes[:, None, :2])
    places = low + side * np.array([[0.2, 0.3], [0.5, 0.5], [0.8, 0.6]])
    values = np.concatenate([places, np.full((*places.shape[:2], 1), 2.0)], axis=-1).astype(np.float32)
    values[0, 1] = 0
    return replace(index, labels=KeypointLabels(values, SPEC.flip), keypoints=SPEC)


def perfect_points(index: SplitIndex) -> KeypointPredictions:
    """Detection's perfect predictions, with the points of each object at its anchor."""
    boxes, anchors = perfect_predictions().one_to_one, make_anchors(SIZE, (8, 16, 32))
    points = torch.full((3, len(anchors), 3, 4), -5.0)
    for image in range(3):
        letterbox = letterbox_for(*SIZES[image], SIZE)
        for i, row in enumerate(range(*index.offsets[image : image + 2])):
            anchor = 40 + 7 * i
            canvas = letterbox.points_to_canvas(index.labels.values[row, :, :2])
            offset = torch.from_numpy(np.asarray(canvas)).float() - anchors.centers[anchor]
            points[image, anchor, :, :2] = offset / anchors.strides[anchor]
    branch = KeypointBranch(*boxes, points)
    return KeypointPredictions(branch, branch)


@pytest.mark.parametrize("which", [0, 1])
def test_perfect_predictions_score_one(which: int) -> None:
    index = keypoint_index()
    letterboxes = [letterbox_for(*size, SIZE) for size in SIZES]
    detections = TASK.decode(TASK.decoders[which], perfect_points(index), letterboxes, SIZE)
    values = TASK.metric_values(TASK.evaluate(index, detections))
    assert TASK.metric_values(TASK.score(index, detections)) == values
    assert values == dict.fromkeys(("oks_ap", "oks_ap50", "box_ap", "box_ap50"), pytest.approx(1.0))
    assert tuple(values) == TASK.metric_names
    assert TASK.primary == "oks_ap"


def test_names_that_reports_rely_on() -> None:
    assert (TASK.name, TASK.labels) == (TaskName.KEYPOINTS, LabelKind.KEYPOINTS)
    assert [(d.name, d.suffix) for d in TASK.decoders] == [("one_to_one", ""), ("one_to_many", "_nms")]
    assert TASK.part_names == ("box", "cls", "l1", "points", "oks")


def test_option_file_has_settings_of_its_own() -> None:
    config = to_root(compose(["task=keypoints", "task.keypoints.flip=[0,2,1]", "task.loss.density=laplace"])).task
    assert isinstance(config, KeypointTaskConfig)
    assert config.keypoints.flip == [0, 2, 1]
    assert (config.loss.rle, config.loss.oks, config.loss.anchors_per_object) == (1.0, 24.0, 10)
    assert config.loss.density == "laplace"
    assert (config.loss.box, config.assigner.topk_one_to_many) == (7.5, 10)


def test_class_rows_are_those_of_detection() -> None:
    detect = get_task(TaskName.DETECT)
    with torch.device("meta"):
        models = TASK.build_model(NANO, LabelSpec(CLASSES, SPEC)), detect.build_model(NANO, LabelSpec(CLASSES))
    assert TASK.class_rows(models[0]) == detect.class_rows(models[1])
    assert len(TASK.class_rows(models[0])) == 12


def test_data_that_is_not_read_has_the_points_of_coco() -> None:
    spec = spec_without_data(LabelKind.KEYPOINTS, 80)
    assert (spec.num_classes, spec.keypoints is not None and len(spec.keypoints)) == (80, 17)
    loss = TASK.build_loss(KeypointTaskConfig(), spec, 64)
    assert torch.equal(loss.variances, torch.full((17,), 0.144).square())
    assert spec_without_data(LabelKind.BOXES, 80) == LabelSpec(80)


def test_model_and_loss_overfit_two_pictures() -> None:
    torch.manual_seed(0)
    size, spec = 64, LabelSpec(CLASSES, SPEC)
    model, loss = TASK.build_model(NANO, spec), TASK.build_loss(KeypointTaskConfig(), spec, size)
    assert isinstance(loss, KeypointLoss)
    shorten(model)  # detection's overfit trains backbone and neck
    TASK.set_epoch(loss, 4, 10)
    images = torch.rand(2, 3, size, size)
    boxes = torch.tensor([[8.0, 8.0, 40.0, 50.0], [20.0, 16.0, 60.0, 60.0], [4.0, 4.0, 24.0, 24.0], [0.0] * 4])
    places = boxes[:, None, :2] + (boxes[:, None, 2:] - boxes[:, None, :2]) * torch.tensor(
        [[0.2, 0.2], [0.5, 0.6], [0.9, 0.3]]
    )
    targets = Targets(
        image_index=torch.tensor([0, 1, 1, 0]),
        classes=torch.tensor([0, 2, 1, 0]),
        boxes=boxes,
        valid=torch.tensor([True, True, True, False]),
        keypoints=torch.cat((places, torch.ones(4, 3, 1)), -1),
    )
    optimizer = build_optimizer(model, to_root(compose(["optimizer=adamw", "optimizer.lr=0.002"])).optimizer, loss)
    before = [parameter.clone() for parameter in loss.parameters()]
    for _ in range(40):
        predictions = model(images)
        losses = loss(predictions, targets)
        optimizer.zero_grad()
        losses.total.backward()
        optimizer.step()
    assert losses.parts.shape == (len(TASK.part_names),)
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in [*model.parameters(), *loss.parameters()])
    assert any(not torch.equal(a, b) for a, b in zip(before, loss.parameters(), strict=True))
    letterboxes = [letterbox_for(size, size, size)] * 2
    detections = TASK.decode(TASK.decoders[1], model(images), letterboxes, size)
    distances = []
    for image, label, row in ((0, 0, 0), (1, 2, 1), (1, 1, 2)):
        found = detections[image].keypoints[detections[image].classes == label][0]
        distances.append(np.linalg.norm(found[:, :2] - places[row].numpy(), axis=1))
    assert np.mean(distances) < 6.0  # 0.8 to 2.5, by the seed; the middle of the picture is 17 away
