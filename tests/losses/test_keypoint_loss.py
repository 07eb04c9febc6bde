"""The loss of key points against a loop from its formulas, values by hand, gradients, and what recording it needs."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lucid_yolo.assign.task_aligned import Assignment
from lucid_yolo.config.tasks import AssignerConfig, KeypointLossConfig, LossConfig, PointDensity
from lucid_yolo.data.batch import Targets
from lucid_yolo.losses.detection import DetectionLoss, stack_branches
from lucid_yolo.losses.keypoints import PART_NAMES, KeypointLoss, choose_point_slots
from lucid_yolo.nn.predictions import BranchPredictions, KeypointBranch, KeypointPredictions, Predictions
from lucid_yolo.ops.anchors import make_anchors
from tests.losses.dispatch import Watch

SIZE, CLASSES, BATCH, POINTS = 64, 3, 2, 3
ANCHORS = make_anchors(SIZE, (8, 16, 32))
SIGMAS = (0.03, 0.07, 0.1)
ROWS = [
    (0, 1, [4.0, 6.0, 40.0, 30.0], [(5.0, 8.0, 1.0), (30.0, 20.0, 1.0), (44.0, 2.0, 1.0)]),
    (0, 2, [20.0, 10.0, 62.0, 60.0], [(0.0, 0.0, 0.0), (40.0, 33.0, 1.0), (0.0, 0.0, 0.0)]),
    (1, 0, [30.0, 30.0, 33.0, 34.0], [(31.0, 31.5, 1.0), (32.5, 33.0, 1.0), (0.0, 0.0, 0.0)]),
    (1, 0, [2.0, 3.0, 23.0, 50.0], [(0.0, 0.0, 0.0)] * 3),
    (1, 1, [10.0, 5.0, 29.0, 44.0], [(12.0, 40.0, 1.0), (0.0, 0.0, 0.0), (20.0, 25.0, 1.0)]),
]
Row = tuple[int, int, list[float], list[tuple[float, float, float]]]


def make_loss(density: PointDensity = PointDensity.FLOW, **changes: float) -> KeypointLoss:
    """A loss whose flow is no longer the identity."""
    torch.manual_seed(0)
    config = KeypointLossConfig(**{"rle": 1.0, "oks": 24.0, **changes}, density=density)
    loss = KeypointLoss(CLASSES, SIGMAS, ANCHORS, config, AssignerConfig())
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return loss


def make_targets(rows: list[Row], padded_to: int) -> Targets:
    pad = padded_to - len(rows)
    return Targets(
        image_index=torch.tensor([r[0] for r in rows] + [0] * pad),
        classes=torch.tensor([r[1] for r in rows] + [0] * pad),
        boxes=torch.tensor([r[2] for r in rows] + [[0.0] * 4] * pad).view(-1, 4),
        valid=torch.tensor([True] * len(rows) + [False] * pad),
        keypoints=torch.tensor([r[3] for r in rows] + [[(0.0, 0.0, 0.0)] * POINTS] * pad),
    )


def make_predictions(seed: int, dtype: torch.dtype = torch.float32) -> KeypointPredictions:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(BATCH, len(ANCHORS), *shape, generator=generator, dtype=torch.float64)

    branches = []
    for _ in range(2):
        distances = draw(4).abs() + 0.2
        tensors = distances, draw(CLASSES), draw(POINTS, 4)
        branches.append(KeypointBranch(*(t.to(dtype).requires_grad_() for t in tensors)))
    return KeypointPredictions(*branches)


def leaves(predictions: KeypointPredictions) -> list[Tensor]:
    return [tensor for branch in predictions for tensor in branch]


def assign(loss: KeypointLoss, predictions: KeypointPredictions, targets: Targets) -> Assignment:
    stacked = stack_branches(Predictions(*(BranchPredictions(*branch[:2]) for branch in predictions)))
    return loss.boxes.assign(stacked, targets)


def slow_terms(loss: KeypointLoss, predictions: KeypointPredictions, targets: Targets) -> list[list[float]]:
    """Points and OKS of both branches, without gains and alpha, one anchor and point at a time."""
    assignment = assign(loss, predictions, targets)
    found: list[list[float]] = [[], []]
    for branch in range(2):
        likelihoods, similarities = [], []
        for image, anchor in assignment.positive[branch].nonzero().tolist():
            row = int(assignment.row[branch, image, anchor])
            x1, y1, x2, y2 = targets.boxes[row].tolist()
            width, height = max(x2 - x1, 1.0), max(y2 - y1, 1.0)
            stride, (cx, cy) = ANCHORS.strides[anchor].item(), ANCHORS.centers[anchor].tolist()
            of_object = []
            for k, (x, y, learned) in enumerate(targets.keypoints[row].tolist()):
                if not learned:
                    continue
                dx, dy, raw_x, raw_y = predictions[branch].points[image, anchor, k].tolist()
                ex, ey = x - (cx + dx * stride), y - (cy + dy * stride)
                sx, sy = (0.001 + 0.999 / (1 + math.exp(-raw)) for raw in (raw_x, raw_y))
                rx, ry = ex / width / sx, ey / height / sy
                value = math.log(2 * sx) + abs(rx) + math.log(2 * sy) + abs(ry)
                if loss.flow is not None:
                    value -= loss.flow(torch.tensor([[rx, ry]], dtype=torch.float64)).item()
                likelihoods.append(value)
                of_object.append(math.exp(-(ex**2 + ey**2) / (2 * width * height * (2 * SIGMAS[k]) ** 2)))
            if of_object:
                similarities.append(1 - sum(of_object) / len(of_object))
        for i, values in enumerate((likelihoods, similarities)):
            found[i].append(sum(values) / max(len(values), 1))
    return found


@settings(deadline=None, max_examples=15)
@given(
    st.integers(0, 2**31),
    st.lists(st.sampled_from(ROWS), max_size=5, unique_by=id),
    st.floats(0, 1),
    st.sampled_from(PointDensity),
)
def test_equals_the_loop(seed: int, rows: list[Row], alpha: float, density: PointDensity) -> None:
    predictions, targets = make_predictions(seed, torch.float64), make_targets(rows, 6)
    loss = make_loss(density).double()
    loss.boxes.alpha.fill_(alpha)
    found = loss(predictions, targets)
    expected = [
        gain * (alpha * first + (1 - alpha) * second)
        for gain, (first, second) in zip((1.0, 24.0), slow_terms(loss, predictions, targets), strict=True)
    ]
    assert found.parts[3:].tolist() == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert found.total.item() == pytest.approx(found.parts.sum().item(), rel=1e-9)
    assert len(PART_NAMES) == len(found.parts) == 5


def test_boxes_and_classes_are_those_of_detection() -> None:
    predictions, targets = make_predictions(1), make_targets(ROWS, 8)
    detection = DetectionLoss(CLASSES, ANCHORS, LossConfig(), AssignerConfig())
    expected = detection(Predictions(*(BranchPredictions(*branch[:2]) for branch in predictions)), targets)
    assert torch.equal(make_loss()(predictions, targets).parts[:3], expected.parts)


def test_value_by_hand() -> None:
    """One object of 12 by 12 pixels, one cell of stride 16, one point that is missed by one pixel along x."""
    branch = KeypointBranch(torch.full((1, 1, 4), 0.25), torch.zeros(1, 1, 1), torch.tensor([[[[0.125, 0.0, 0, 0]]]]))
    predictions = KeypointPredictions(branch, branch)
    targets = make_targets([(0, 0, [2.0, 2.0, 14.0, 14.0], [(11.0, 8.0, 1.0)] * POINTS)], 2)
    targets.keypoints = targets.keypoints[:, :1]
    # Centre (8, 8), so the point is predicted at (10, 8). Spread 0.001 + 0.999 / 2 = 0.5005 sides; the error is 1 / 12.
    residual = 1 / 12 / 0.5005
    laplace = 2 * math.log(1.001) + residual
    normal = math.log(2 * math.pi) + residual**2 / 2  # what a flow that has learned nothing adds
    similarity = math.exp(-1 / (2 * 144 * 0.2**2))
    for density, points in ((PointDensity.LAPLACE, laplace), (PointDensity.FLOW, laplace + normal)):
        config = KeypointLossConfig(rle=2.0, oks=3.0, density=density)
        loss = KeypointLoss(1, (0.1,), make_anchors(16, (16,)), config, AssignerConfig())
        found = loss(predictions, targets).parts[3:].tolist()
        assert found == pytest.approx([2 * points, 3 * (1 - similarity)], rel=1e-5)


@pytest.mark.parametrize("density", PointDensity)
def test_gradients_equal_numeric_ones(density: PointDensity) -> None:
    predictions, targets = make_predictions(1, torch.float64), make_targets(ROWS, 8)
    loss = make_loss(density).double()
    assignment = assign(loss, predictions, targets)  # constant for the gradient, as in forward
    parameters = tuple(loss.parameters())

    def terms(first: Tensor, second: Tensor, *_: Tensor) -> Tensor:
        branches = [b._replace(points=p) for b, p in zip(predictions, (first, second), strict=True)]
        return loss.terms(KeypointPredictions(*branches), assignment, targets)

    points = [branch.points for branch in predictions]
    assert torch.autograd.gradcheck(terms, (*points, *parameters), fast_mode=True)


def test_forward_gives_the_gradient_of_its_terms() -> None:
    predictions, targets, loss = make_predictions(2), make_targets(ROWS, 8), make_loss()
    loss(predictions, targets).total.backward()
    terms = loss.terms(predictions, assign(loss, predictions, targets), targets)
    sources = [*(branch.points for branch in predictions), *loss.parameters()]
    for source, expected in zip(sources, torch.autograd.grad(terms.sum(), sources), strict=True):
        torch.testing.assert_close(source.grad, expected, rtol=1e-5, atol=1e-7)
        assert expected.abs().sum() > 0


@pytest.mark.parametrize("rows", [[], [ROWS[3]]], ids=["no object", "an object without points"])
def test_nothing_to_learn_gives_exact_zeros_with_gradients(rows: list[Row]) -> None:
    predictions, loss = make_predictions(4), make_loss()
    losses = loss(predictions, make_targets(rows, 16))
    assert losses.parts[3:].tolist() == [0.0, 0.0]
    assert (losses.parts[0] > 0) == bool(rows)  # the box of an object without points is learned
    losses.total.backward()
    for tensor in [*(branch.points for branch in predictions), *loss.parameters()]:
        assert tensor.grad is not None
        assert torch.equal(tensor.grad, torch.zeros_like(tensor))


def test_nan_of_points_that_do_not_count_reaches_no_gradient_but_of_others_it_shows() -> None:
    predictions, targets, loss = make_predictions(5), make_targets(ROWS[1:2], 4), make_loss()
    targets.keypoints[0, 0, :2] = torch.nan  # not to be learned
    positive = assign(loss, predictions, targets).positive
    with torch.no_grad():
        for branch, taken in zip(predictions, positive, strict=True):
            branch.points[~taken] = torch.nan
            branch.points[:, :, 2] = torch.inf
    losses = loss(predictions, targets)
    losses.total.backward()
    assert torch.isfinite(losses.total)
    for tensor in [*leaves(predictions), *loss.parameters()]:
        assert tensor.grad is not None
        assert torch.isfinite(tensor.grad).all()
    with torch.no_grad():
        predictions.one_to_one.points[positive[1]] = torch.nan
    assert torch.isnan(loss(predictions, targets).total)


def test_extreme_outputs_stay_finite() -> None:
    predictions, targets, loss = make_predictions(6), make_targets(ROWS, 8), make_loss()
    with torch.no_grad():
        for branch, sign in zip(predictions, (-1, 1), strict=True):
            branch.points[..., 2:] = sign * 200.0
    losses = loss(predictions, targets)
    losses.total.backward()
    assert torch.isfinite(losses.total)
    assert all(torch.isfinite(branch.points.grad).all() for branch in predictions)


def test_slots_are_the_anchors_of_the_largest_weights() -> None:
    positive = torch.tensor([[[False, True, True, False], [True, False, False, True]]]).expand(2, -1, -1)
    weight = torch.tensor([[[0.0, 0.2, 0.9, 0.0], [0.5, 0.0, 0.0, 0.0]]]).expand(2, -1, -1)
    row = torch.tensor([[[0, 3, 1, 0], [2, 0, 0, 5]]]).expand(2, -1, -1)
    slots = choose_point_slots(Assignment(positive, row, weight), 0, 6)
    assert slots.anchor.tolist()[:4] == [2, 4, 1, 7]
    assert slots.row.tolist()[:4] == [1, 2, 3, 5]
    assert slots.taken.tolist() == [True] * 4 + [False] * 2
    assert choose_point_slots(Assignment(positive, row, weight), 1, 2).anchor.tolist() == [2, 4]
    assert len(choose_point_slots(Assignment(positive, row, weight), 1, 100).anchor) == 8


def test_fewer_anchors_an_object_leave_out_the_light_ones() -> None:
    predictions, targets = make_predictions(7), make_targets(ROWS[:1], 1)
    loss = make_loss(anchors_per_object=2)
    assignment = assign(loss, predictions, targets)
    weight = assignment.weight.clone()
    assert int(assignment.positive[0].sum()) > 2
    best = weight[0].flatten().topk(2).indices
    kept = torch.zeros_like(assignment.positive[0]).flatten().index_fill(0, best, 1).view_as(weight[0])
    light = Assignment(torch.stack((kept & assignment.positive[0], assignment.positive[1])), assignment.row, weight)
    expected = make_loss().terms(predictions, light, targets)
    torch.testing.assert_close(loss.terms(predictions, assignment, targets), expected)


def test_float32_inside_autocast() -> None:
    targets, predictions = make_targets(ROWS, 8), make_predictions(7, torch.bfloat16)
    widened = KeypointPredictions(*(KeypointBranch(*(t.detach().float() for t in branch)) for branch in predictions))
    with torch.autocast("cpu", torch.bfloat16):
        losses = make_loss()(predictions, targets)
    assert losses.total.dtype == losses.parts.dtype == torch.float32
    assert losses.total.item() == make_loss()(widened, targets).total.item()
    losses.total.backward()
    assert all(leaf.grad is not None and leaf.grad.dtype == torch.bfloat16 for leaf in leaves(predictions))


def test_only_the_flow_is_saved() -> None:
    loss = make_loss()
    assert set(loss.state_dict()) == {f"flow.{name}" for name in loss.flow.state_dict()}
    assert make_loss(PointDensity.LAPLACE).state_dict() == {}
    assert list(make_loss(PointDensity.LAPLACE).parameters()) == []
    loss.set_epoch(4, 5)
    assert loss.boxes.alpha.item() == pytest.approx(0.1)


def test_step_reads_nothing_from_the_device_and_stays_below_its_number_of_kernels() -> None:
    predictions, targets, loss = make_predictions(8, torch.bfloat16), make_targets(ROWS, 8), make_loss()
    with Watch() as forward, torch.autocast("cpu", torch.bfloat16):
        total = loss(predictions, targets).total
    with Watch() as backward:
        total.backward()
    assert forward.launched.total() <= 330, forward.launched
    assert forward.launched.total() + backward.launched.total() <= 680, backward.launched
