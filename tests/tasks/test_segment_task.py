"""The task as the engine uses it: from a network's output to scores, with perfect predictions as the check."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from lucid_yolo.config.compose import compose, to_root
from lucid_yolo.config.schema import ModelConfig
from lucid_yolo.config.tasks import SegmentTaskConfig, TaskName
from lucid_yolo.data.batch import Targets
from lucid_yolo.data.empty import empty_targets
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import LabelKind, LabelSpec
from lucid_yolo.data.labels.polygons import Outline, PolygonLabels
from lucid_yolo.losses.segmentation import SegmentationLoss, stack_detections
from lucid_yolo.nn.model import Segmenter
from lucid_yolo.nn.predictions import SegmentBranch, SegmentPredictions
from lucid_yolo.ops.anchors import make_anchors
from lucid_yolo.ops.boxes import xyxy_to_ltrb
from lucid_yolo.ops.letterbox import letterbox_for
from lucid_yolo.tasks import get_task
from tests.nn.networks import shorten
from tests.tasks.splits import make_val_split

SIZE, CLASSES = 96, 3
NANO = ModelConfig(variant="n", depth=0.5, width=0.25, max_channels=1024)
SIZES = [(96, 96), (192, 96), (48, 80)]
OBJECTS = [  # pictures of boxes; every object is the lower left half of its box
    [([12.0, 20.0, 52.0, 60.0], 0), ([60.0, 60.0, 92.0, 92.0], 2)],
    [([16.0, 8.0, 152.0, 80.0], 1)],
    [([4.0, 10.0, 30.0, 70.0], 2)],
]


def triangle(box: list[float]) -> Outline:
    left, top, right, bottom = box
    return Outline(np.array([[left, top], [right, bottom], [left, bottom]]), (3,), (False,))


def make_index() -> SplitIndex:
    rows = [row for image in OBJECTS for row in image]
    boxes = np.array([box for box, _ in rows], np.float32)
    return make_val_split(
        boxes,
        [label for _, label in rows],
        counts=[len(image) for image in OBJECTS],
        sizes=SIZES,
        areas=(boxes[:, 2:] - boxes[:, :2]).prod(axis=1) / 2,
        labels=PolygonLabels.of([triangle(box) for box, _ in rows]),
    )


def perfect_predictions() -> SegmentPredictions:
    """Each object once, at some anchor, and nothing elsewhere; the map of an object is one prototype of its own."""
    anchors = make_anchors(SIZE, (8, 16, 32))
    distances = torch.full((3, len(anchors), 4), 0.1)
    logits = torch.full((3, len(anchors), CLASSES), -12.0)
    coefficients = torch.zeros(3, len(anchors), 32)
    prototypes = torch.zeros(3, 32, SIZE // 4, SIZE // 4)
    cells = (torch.arange(SIZE // 4) + 0.5) * 4
    for image, objects in enumerate(OBJECTS):
        letterbox = letterbox_for(*SIZES[image], SIZE)
        for i, (box, label) in enumerate(objects):
            anchor = 40 + 7 * i
            corners = torch.from_numpy(letterbox.boxes_to_canvas(np.array([box])))
            origins, strides = anchors.origins()[anchor : anchor + 1], anchors.signed_strides()[anchor : anchor + 1]
            distances[image, anchor] = xyxy_to_ltrb(corners, origins, strides)[0]
            logits[image, anchor, label] = 4.0
            coefficients[image, anchor, i] = 1.0
            left, top, right, bottom = corners[0].tolist()
            across, down = (cells - left) / (right - left), (cells - top) / (bottom - top)
            prototypes[image, i] = down[:, None] - across[None]  # positive below the diagonal
    branch = SegmentBranch(distances, logits, coefficients)
    return SegmentPredictions(branch, branch, prototypes, ())


@pytest.mark.parametrize("which", [0, 1])
def test_perfect_predictions_score_one(which: int) -> None:
    task, index = get_task(TaskName.SEGMENT), make_index()
    letterboxes = [letterbox_for(*size, SIZE) for size in SIZES]
    detections = task.decode(task.decoders[which], perfect_predictions(), letterboxes, SIZE)
    values = task.metric_values(task.evaluate(index, detections))
    assert tuple(values) == task.metric_names
    assert task.primary in values
    assert values["box_ap"] == values["box_ap50"] == values["mask_ap50"] == pytest.approx(1.0)
    assert values["mask_ap"] > 0.9  # a mask cannot be finer than its cells
    wrong = replace(index, labels=PolygonLabels.of([triangle([0, 0, 8, 8])] * len(index.boxes)))
    values = task.metric_values(task.evaluate(wrong, detections))
    assert task.metric_values(task.score(wrong, detections)) == values
    assert values["box_ap"] == pytest.approx(1.0)
    assert values["mask_ap50"] == 0.0


def test_names_that_reports_rely_on() -> None:
    task = get_task(TaskName.SEGMENT)
    assert task.name is TaskName.SEGMENT
    assert task.labels is LabelKind.POLYGONS
    assert [(d.name, d.suffix) for d in task.decoders] == [("one_to_one", ""), ("one_to_many", "_nms")]
    assert task.part_names == ("box", "cls", "l1", "mask", "semantic")


def test_rows_of_the_classes() -> None:
    task = get_task(TaskName.SEGMENT)
    with torch.device("meta"):
        model = task.build_model(NANO, LabelSpec(7))
    parameters = dict(model.named_parameters())
    assert {name for name, p in parameters.items() if p.shape[0] == 7} == set(task.class_rows(model))
    assert len(task.class_rows(model)) == 2 * 3 * 2 + 2


def test_the_option_selects_settings_of_its_own() -> None:
    config = to_root(compose(["task=segment", "task.loss.mask=1.5", "task.loss.mask_slots_one_to_one=9"]))
    assert isinstance(config.task, SegmentTaskConfig)
    loss = get_task(config.task.name).build_loss(config.task, LabelSpec(CLASSES), 64)
    assert isinstance(loss, SegmentationLoss)
    assert (loss.config.mask, loss.config.semantic, loss.config.mask_slots_one_to_one) == (1.5, 0.5, 9)


def test_targets_of_nothing_train_nothing_but_classes() -> None:
    task, size = get_task(TaskName.SEGMENT), 64
    loss = task.build_loss(SegmentTaskConfig(name=TaskName.SEGMENT), LabelSpec(CLASSES), size)
    targets = empty_targets(task.labels, LabelSpec(CLASSES), rows=16, image_size=size)
    losses = loss(task.build_model(NANO, LabelSpec(CLASSES))(torch.rand(2, 3, size, size)), targets)
    assert losses.parts[[0, 2, 3]].tolist() == [0.0, 0.0, 0.0]
    assert losses.total > 0


def test_model_and_loss_overfit_two_pictures() -> None:
    torch.manual_seed(0)
    task, size = get_task(TaskName.SEGMENT), 64
    model, loss = (
        task.build_model(NANO, LabelSpec(CLASSES)),
        task.build_loss(SegmentTaskConfig(name=TaskName.SEGMENT), LabelSpec(CLASSES), size),
    )
    assert isinstance(model, Segmenter)
    assert isinstance(loss, SegmentationLoss)
    shorten(model)  # detection's overfit trains backbone and neck
    task.set_epoch(loss, 4, 10)
    boxes = [[8.0, 8.0, 40.0, 48.0], [20.0, 16.0, 60.0, 60.0], [4.0, 4.0, 24.0, 24.0]]
    masks = PolygonLabels.of([triangle(box) for box in boxes]).target_rows(size)
    targets = Targets(
        image_index=torch.tensor([0, 1, 1, 0]),
        classes=torch.tensor([0, 2, 1, 0]),
        boxes=torch.tensor([*boxes, [0.0] * 4]),
        valid=torch.tensor([True, True, True, False]),
        masks=torch.from_numpy(np.concatenate([masks, np.zeros_like(masks[:1])])),
    )
    images = torch.rand(2, 3, size, size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    first = None
    for _ in range(50):
        predictions = model(images)
        losses = loss(predictions, targets)
        first = losses.parts if first is None else first
        optimizer.zero_grad()
        losses.total.backward()
        optimizer.step()
    assert first is not None
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    assert (losses.parts[3:] < 0.25 * first[3:]).all()
    assignment = loss.detection.assign(stack_detections(predictions), targets)
    for branch in range(2):  # the best anchor of each object draws its mask
        for row in range(3):
            mine = torch.where(assignment.row[branch] == row, assignment.weight[branch], 0.0)
            image, anchor = divmod(int(mine.argmax()), mine.shape[1])
            logits = torch.einsum(
                "m,mhw->hw", predictions[branch].coefficients[image, anchor], predictions.prototypes[image]
            )
            left, top, right, bottom = (int(edge / 4) for edge in boxes[row])
            found = (logits > 0)[top:bottom, left:right]
            truth = torch.from_numpy(np.unpackbits(masks[row], axis=-1)).bool()[top:bottom, left:right]
            assert (found & truth).sum() / (found | truth).sum() > 0.8
