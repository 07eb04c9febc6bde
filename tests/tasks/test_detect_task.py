"""The task as the engine uses it: from a network's output to scores, with perfect predictions as the check."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lucid_yolo.config.schema import ModelConfig
from lucid_yolo.config.tasks import TaskConfig, TaskName
from lucid_yolo.data.batch import Targets
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import LabelSpec
from lucid_yolo.losses.detection import DetectionLoss, stack_branches
from lucid_yolo.nn.predictions import BranchPredictions, Predictions
from lucid_yolo.ops.anchors import make_anchors
from lucid_yolo.ops.boxes import xyxy_to_ltrb
from lucid_yolo.ops.letterbox import letterbox_for
from lucid_yolo.tasks import get_task
from tests.tasks.splits import make_val_split

SIZE, CLASSES = 96, 3
NANO = ModelConfig(variant="n", depth=0.5, width=0.25, max_channels=1024)
SIZES = [(96, 96), (192, 96), (40, 80)]
BOXES = [
    [([10.0, 20.0, 50.0, 60.0], 0), ([60.0, 60.0, 90.0, 92.0], 2)],
    [([20.0, 8.0, 150.0, 80.0], 1)],
    [([5.0, 10.0, 30.0, 70.0], 2), ([8.0, 20.0, 36.0, 44.0], 0)],
]


def make_index() -> SplitIndex:
    rows = [row for image in BOXES for row in image]
    boxes = np.array([box for box, _ in rows], np.float32)
    return make_val_split(
        boxes,
        [label for _, label in rows],
        counts=[len(image) for image in BOXES],
        sizes=SIZES,
        areas=(boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]),
    )


def perfect_predictions() -> Predictions:
    """Distances and logits that state each object once, at some anchor, and nothing elsewhere."""
    anchors = make_anchors(SIZE, (8, 16, 32))
    distances = torch.full((3, len(anchors), 4), 0.1)
    logits = torch.full((3, len(anchors), CLASSES), -12.0)
    for image, objects in enumerate(BOXES):
        letterbox = letterbox_for(*SIZES[image], SIZE)
        for i, (box, label) in enumerate(objects):
            anchor = 40 + 7 * i
            corners = torch.from_numpy(letterbox.boxes_to_canvas(np.array([box])))
            origins, strides = anchors.origins()[anchor : anchor + 1], anchors.signed_strides()[anchor : anchor + 1]
            distances[image, anchor] = xyxy_to_ltrb(corners, origins, strides)[0]
            logits[image, anchor, label] = 4.0
    branch = BranchPredictions(distances, logits)
    return Predictions(branch, branch)


@pytest.mark.parametrize("which", [0, 1])
def test_perfect_predictions_score_one(which: int) -> None:
    task, index = get_task(TaskName.DETECT), make_index()
    decoder = task.decoders[which]
    letterboxes = [letterbox_for(*size, SIZE) for size in SIZES]
    detections = task.decode(decoder, perfect_predictions(), letterboxes, SIZE)
    values = task.metric_values(task.evaluate(index, detections))
    assert task.metric_values(task.score(index, detections)) == values
    assert values == {"box_ap": pytest.approx(1.0), "box_ap50": pytest.approx(1.0)}
    assert tuple(values) == task.metric_names
    assert task.primary in values


def test_names_that_reports_rely_on() -> None:
    task = get_task(TaskName.DETECT)
    assert task.name is TaskName.DETECT
    assert [(d.name, d.suffix) for d in task.decoders] == [("one_to_one", ""), ("one_to_many", "_nms")]
    assert task.part_names == ("box", "cls", "l1")


def test_model_and_loss_overfit_two_pictures() -> None:
    torch.manual_seed(0)
    task, size = get_task(TaskName.DETECT), 64
    model, loss = (
        task.build_model(NANO, LabelSpec(CLASSES)),
        task.build_loss(TaskConfig(name=TaskName.DETECT), LabelSpec(CLASSES), size),
    )
    assert isinstance(loss, DetectionLoss)
    task.set_epoch(loss, 4, 10)
    images = torch.rand(2, 3, size, size)
    targets = Targets(
        image_index=torch.tensor([0, 1, 1, 0]),
        classes=torch.tensor([0, 2, 1, 0]),
        boxes=torch.tensor([[8.0, 8.0, 40.0, 50.0], [20.0, 16.0, 60.0, 60.0], [4.0, 4.0, 24.0, 24.0], [0.0] * 4]),
        valid=torch.tensor([True, True, True, False]),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(50):  # after 40 all are above 0.78, of three seeds
        predictions = model(images)
        losses = loss(predictions, targets)
        optimizer.zero_grad()
        losses.total.backward()
        optimizer.step()
    assert losses.parts.shape == (len(task.part_names),)
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    assignment = loss.assign(stack_branches(predictions), targets)
    for branch in range(2):  # the best anchor of an object weighs its IoU
        for row in range(3):
            assert assignment.weight[branch][assignment.positive[branch] & (assignment.row[branch] == row)].max() > 0.6
