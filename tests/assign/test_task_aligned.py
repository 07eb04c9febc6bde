"""The dense assignment against the loop in assignment_loop.py, and its corner cases by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lucid_yolo.assign.task_aligned import Assignment, task_aligned_assignment
from lucid_yolo.config.tasks import AssignerConfig
from lucid_yolo.data.batch import Targets
from lucid_yolo.ops.anchors import Anchors, make_anchors
from tests.assign.assignment_loop import slow_assignment

SIZE, STRIDES, CLASSES = 64, (8, 16, 32), 3
ANCHORS = make_anchors(SIZE, STRIDES)


def make_targets(rows: list[tuple[int, int, list[float]]], padded_to: int) -> Targets:
    """Pack (image, class, xyxy) rows."""
    pad = padded_to - len(rows)
    return Targets(
        image_index=torch.tensor([r[0] for r in rows] + [0] * pad),
        classes=torch.tensor([r[1] for r in rows] + [0] * pad),
        boxes=torch.tensor([r[2] for r in rows] + [[0.0] * 4] * pad).view(-1, 4),
        valid=torch.tensor([True] * len(rows) + [False] * pad),
    )


def random_predictions(batch: int, generator: torch.Generator, anchors: Anchors = ANCHORS) -> tuple[Tensor, Tensor]:
    """Logits and plausible boxes around the anchors, no two equal."""
    count = len(anchors)
    logits = torch.randn(2, batch, count, CLASSES, generator=generator, dtype=torch.float64)
    reach = (torch.rand(2, batch, count, 4, generator=generator, dtype=torch.float64) * 2 + 0.2) * anchors.strides[
        :, None
    ]
    return logits, torch.cat((anchors.centers - reach[..., :2], anchors.centers + reach[..., 2:]), -1)


def assert_equals_loop(
    logits: Tensor, boxes: Tensor, targets: Targets, config: AssignerConfig, anchors: Anchors = ANCHORS
) -> Assignment:
    result = task_aligned_assignment(logits, boxes, anchors.centers, targets, config)
    slow = slow_assignment(logits, boxes, anchors.centers, targets, config)
    positive, row, weight = slow.tensors(logits.shape[1], len(anchors))
    assert torch.equal(result.positive, positive)
    assert torch.equal(result.row, row)
    torch.testing.assert_close(result.weight, weight, rtol=1e-9, atol=1e-12)
    return result


# Sixteenths of a pixel: float32 computes with them without rounding, on an edge and where a side is just small.
corners = st.integers(0, 56 * 16).map(lambda sixteenths: sixteenths / 16)
sides = st.integers(2 * 16, 60 * 16).map(lambda sixteenths: sixteenths / 16)
objects = st.tuples(st.integers(0, 2), st.integers(0, CLASSES - 1), corners, corners, sides, sides)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(objects, max_size=12),
    st.integers(0, 4),
    st.integers(0, 2**31),
    st.sampled_from([AssignerConfig(), AssignerConfig(topk_one_to_many=3, topk_one_to_one=5, alpha=0.5, beta=2.0)]),
)
def test_equals_the_loop(
    found: list[tuple[int, int, float, float, float, float]], padding: int, seed: int, config: AssignerConfig
) -> None:
    rows = [(i, c, [x, y, min(x + w, 64.0), min(y + h, 64.0)]) for i, c, x, y, w, h in found]
    generator = torch.Generator().manual_seed(seed)
    logits, boxes = random_predictions(3, generator)
    # Predictions reach over the canvas, so that no metric is zero: among equal ones the edge of a top-k is not defined.
    boxes = torch.cat((boxes[..., :2] - 64, boxes[..., 2:] + 64), -1)
    assert_equals_loop(logits, boxes, make_targets(rows, max(len(rows) + padding, 1)), config)


@pytest.mark.parametrize("seed", range(4))
def test_crowded_images_with_many_conflicts(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits, boxes = random_predictions(2, generator)
    boxes = torch.cat((boxes[..., :2] - 8, boxes[..., 2:] + 8), -1)
    rows = []
    for image in range(2):
        for _ in range(15):
            x, y = (torch.rand(2, generator=generator) * 30).tolist()
            w, h = (torch.rand(2, generator=generator) * 25 + 6).tolist()
            rows.append((image, int(torch.randint(CLASSES, (), generator=generator)), [x, y, x + w, y + h]))
    result = assert_equals_loop(logits, boxes, make_targets(rows, 32), AssignerConfig())
    owners = result.row[1][result.positive[1]]
    assert len(owners.unique()) == len(owners)  # one-to-one: an object has at most one anchor


def test_equal_objects_leave_the_anchor_to_the_lowest_row() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, boxes = random_predictions(1, generator)
    rows = [(0, 1, [3.0, 3.0, 50.0, 45.0])] * 3
    result = assert_equals_loop(logits, boxes, make_targets(rows, 4), AssignerConfig())
    assert result.row[result.positive].unique().tolist() == [0]
    assert result.positive[0].sum() == 10


def test_small_object_takes_anchors_from_the_widened_window_but_is_scored_as_it_is() -> None:
    truth = [29.0, 29.0, 32.0, 32.0]  # 3 px: no centre of the grid lies in it; widened to 22.5 .. 38.5
    logits = torch.zeros(2, 1, len(ANCHORS), CLASSES, dtype=torch.float64)
    boxes = torch.tensor(truth, dtype=torch.float64).expand(2, 1, len(ANCHORS), 4) + torch.arange(
        len(ANCHORS), dtype=torch.float64
    ).view(1, 1, -1, 1) * torch.tensor([0.0, 0.0, 1e-3, 1e-3], dtype=torch.float64)
    result = assert_equals_loop(logits, boxes, make_targets([(0, 0, truth)], 1), AssignerConfig())
    inside = [i for i, (x, y) in enumerate(ANCHORS.centers.tolist()) if 22.5 <= x <= 38.5 and 22.5 <= y <= 38.5]
    assert inside
    assert result.positive[0, 0].nonzero().flatten().tolist() == inside
    assert result.weight[0].max().item() == pytest.approx(9 / (3 + min(inside) * 1e-3) ** 2)
    without = AssignerConfig(small_side=0.0)
    assert not assert_equals_loop(logits, boxes, make_targets([(0, 0, truth)], 1), without).positive.any()


def test_only_the_small_side_is_widened() -> None:
    config = AssignerConfig()
    generator = torch.Generator().manual_seed(3)
    logits, boxes = random_predictions(1, generator)
    boxes = torch.cat((boxes[..., :2] - 30, boxes[..., 2:] + 30), -1)
    result = assert_equals_loop(logits, boxes, make_targets([(0, 0, [5.0, 29.0, 33.0, 31.0])], 1), config)
    centers = ANCHORS.centers[result.positive[0, 0]]
    assert centers[:, 0].min() >= 5
    assert centers[:, 0].max() <= 33
    assert ((centers[:, 1] < 29) | (centers[:, 1] > 31)).any()


def test_edges_belong_to_the_object() -> None:
    generator = torch.Generator().manual_seed(1)
    logits, boxes = random_predictions(1, generator)
    boxes = torch.cat((boxes[..., :2] - 30, boxes[..., 2:] + 30), -1)
    result = assert_equals_loop(logits, boxes, make_targets([(0, 2, [12.0, 12.0, 20.0, 20.0])], 2), AssignerConfig())
    taken = sorted(ANCHORS.centers[result.positive[0, 0]].tolist())
    assert taken == [[12.0, 12.0], [12.0, 20.0], [16.0, 16.0], [20.0, 12.0], [20.0, 20.0]]


def test_tiny_metrics_keep_their_weights() -> None:
    """t is the sixth power of the IoU: at IoU 0.003 it is below 1e-15, and the best anchor still weighs that IoU."""
    logits = torch.zeros(2, 1, len(ANCHORS), CLASSES)
    truth = [0.0, 0.0, 64.0, 64.0]
    centers = ANCHORS.centers.expand(2, 1, -1, 2)
    boxes = torch.cat((centers - 1.75, centers + 1.75), -1)
    result = task_aligned_assignment(logits, boxes, ANCHORS.centers, make_targets([(0, 0, truth)], 1), AssignerConfig())
    assert result.weight.dtype == torch.float32
    expected = 3.5**2 / 64**2
    torch.testing.assert_close(result.weight[result.positive], torch.full((11,), expected), rtol=1e-4, atol=0)


def test_objects_without_any_overlap_weigh_nothing() -> None:
    logits = torch.zeros(2, 1, len(ANCHORS), CLASSES)
    boxes = torch.full((2, 1, len(ANCHORS), 4), -5.0)
    targets = make_targets([(0, 0, [8.0, 8.0, 40.0, 40.0])], 1)
    result = task_aligned_assignment(logits, boxes, ANCHORS.centers, targets, AssignerConfig())
    assert result.weight.abs().max() == 0.0


@pytest.mark.parametrize("padded_to", [1, 8])
def test_no_object_at_all_assigns_nothing(padded_to: int) -> None:
    logits, boxes = random_predictions(2, torch.Generator().manual_seed(0))
    result = assert_equals_loop(logits, boxes, make_targets([], padded_to), AssignerConfig())
    assert not result.positive.any()


def test_fewer_anchors_than_candidates_asked_for() -> None:
    anchors = make_anchors(32, (16,))
    logits, boxes = random_predictions(1, torch.Generator().manual_seed(0), anchors)
    assert_equals_loop(logits, boxes, make_targets([(0, 0, [0.0, 0.0, 32.0, 32.0])], 2), AssignerConfig(), anchors)


def test_nan_prediction_inside_an_object_shows_in_the_weights() -> None:
    logits, boxes = random_predictions(1, torch.Generator().manual_seed(0))
    targets = make_targets([(0, 0, [0.0, 0.0, 64.0, 64.0])], 2)
    boxes[0, 0, 5] = torch.nan
    result = task_aligned_assignment(logits, boxes, ANCHORS.centers, targets, AssignerConfig())
    assert result.weight[0].isnan().any()
    assert not result.weight[1].isnan().any()
