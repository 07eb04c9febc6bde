"""The loss of oriented boxes against a loop from its formulas, encodings, gradients, and what recording it needs."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lucid_yolo.config.tasks import AssignerConfig, ObbLossConfig
from lucid_yolo.data.batch import Targets
from lucid_yolo.losses.detection import stack_outputs
from lucid_yolo.losses.rotated import PART_NAMES, RotatedLoss
from lucid_yolo.nn.predictions import ObbBranch, ObbPredictions
from lucid_yolo.ops.anchors import make_anchors
from tests.assign.assignment_loop import inside_turned, slow_assignment
from tests.assign.test_rotated_candidates import make_targets
from tests.losses.dispatch import Watch
from tests.ops.rotated_boxes import Rotated, equivalents, vertices

SIZE, CLASSES, BATCH = 64, 3, 2
ANCHORS = make_anchors(SIZE, (8, 16, 32))
GAINS = ObbLossConfig(box=7.5, cls=0.5, l1=6.0, angle=0.25)
ROWS: list[tuple[int, int, Rotated]] = [
    (0, 1, (22.0, 18.0, 40.0, 12.0, 0.4)),
    (0, 2, (40.0, 36.0, 30.0, 28.0, 1.1)),
    (1, 0, (31.0, 32.0, 5.0, 3.0, -0.5)),
    (1, 0, (12.0, 26.0, 46.0, 20.0, math.pi / 2)),
    (1, 1, (20.0, 24.0, 24.0, 24.0, 0.3)),
]


def make_loss(classes: int = CLASSES) -> RotatedLoss:
    return RotatedLoss(classes, ANCHORS, GAINS, AssignerConfig())


def make_predictions(seed: int, dtype: torch.dtype = torch.float32) -> ObbPredictions:
    generator = torch.Generator().manual_seed(seed)
    branches = []
    for _ in range(2):
        distances = torch.rand(BATCH, len(ANCHORS), 4, generator=generator, dtype=torch.float64) * 3 + 0.2
        logits = torch.randn(BATCH, len(ANCHORS), CLASSES, generator=generator, dtype=torch.float64)
        angles = torch.randn(BATCH, len(ANCHORS), generator=generator, dtype=torch.float64) * 2
        branches.append(ObbBranch(*(x.to(dtype).requires_grad_() for x in (distances, logits, angles))))
    return ObbPredictions(*branches)


def leaves(predictions: ObbPredictions) -> list[Tensor]:
    return [tensor for branch in predictions for tensor in branch]


def rebuilt(flat: list[Tensor]) -> ObbPredictions:
    return ObbPredictions(ObbBranch(*flat[:3]), ObbBranch(*flat[3:]))


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def gaussian(box: Rotated) -> np.ndarray:
    """Covariance of a uniform rectangle."""
    turn = cmath.exp(1j * box[4])
    rotation = np.array([[turn.real, -turn.imag], [turn.imag, turn.real]])
    return rotation @ np.diag([box[2] ** 2 / 12, box[3] ** 2 / 12]) @ rotation.T


def slow_hellinger(p: Rotated, t: Rotated) -> float:
    """ProbIoU of arXiv 2106.06072: Bhattacharyya distance of two Gaussians by their matrices."""
    first, second = gaussian(p), gaussian(t)
    mean = (first + second) / 2
    offset = np.array([p[0] - t[0], p[1] - t[1]])
    distance = offset @ np.linalg.inv(mean) @ offset / 8
    distance += math.log(np.linalg.det(mean) / math.sqrt(np.linalg.det(first) * np.linalg.det(second))) / 2
    return math.sqrt(1 - math.exp(-distance))


def slow_l1(p: Rotated, t: Rotated) -> float:
    """Over centre and sides, with the encoding of the target that is turned least against the prediction."""
    nearest = min(equivalents(t, turns=4), key=lambda one: abs(one[4] - p[4]))
    return sum(abs(a - b) for a, b in zip(p[:4], nearest[:4], strict=True))


def slow_angle(p: Rotated, t: Rotated) -> float:
    delta = (p[4] - t[4] + math.pi / 2) % math.pi - math.pi / 2
    return math.exp(-(math.log(t[2] / t[3]) ** 2) / 9) * math.sin(2 * delta) ** 2


def envelope(box: Rotated) -> list[float]:
    xs, ys = zip(*vertices(box), strict=True)
    return [min(xs), min(ys), max(xs), max(ys)]


def slow_parts(predictions: ObbPredictions, targets: Targets, loss: ObbLossConfig, alpha: float) -> list[float]:
    """The four terms of both branches, one anchor and class at a time."""
    parts = [0.0] * 4
    assert targets.rotated is not None
    for branch, share in enumerate((alpha, 1 - alpha)):
        distances, logits, angles = (t.detach().double() for t in predictions[branch])
        boxes: dict[tuple[int, int], Rotated] = {}
        for image in range(BATCH):
            for a, ((x, y), s) in enumerate(zip(ANCHORS.centers.tolist(), ANCHORS.strides.tolist(), strict=True)):
                left, top, right, bottom = distances[image, a].tolist()
                middle = (x + (right - left) / 2 * s, y + (bottom - top) / 2 * s)
                boxes[image, a] = (*middle, (left + right) * s, (top + bottom) * s, angles[image, a].item())
        around = torch.tensor(
            [[envelope(boxes[i, a]) for a in range(len(ANCHORS))] for i in range(BATCH)], dtype=torch.float64
        )
        found = slow_assignment(
            torch.stack((logits, logits)),
            torch.stack((around, around)),
            ANCHORS.centers,
            targets,
            AssignerConfig(),
            lies_in=inside_turned,
        ).found
        mine = {(image, a): value for (b, image, a), value in found.items() if b == branch}
        normaliser = max(sum(w for _, w in mine.values()), 1.0)
        sums = [0.0] * 4
        for (image, a), box in boxes.items():
            row, weight = mine.get((image, a), (None, 0.0))
            for c in range(CLASSES):
                x = logits[image, a, c].item()
                y = weight if row is not None and targets.classes[row] == c else 0.0
                sums[1] += softplus(x) - x * y
            if row is not None:
                target: Rotated = tuple(targets.rotated[row].tolist())
                sums[0] += slow_hellinger(box, target) * weight
                sums[2] += slow_l1(box, target) / ANCHORS.strides[a].item() * weight
                sums[3] += slow_angle(box, target) * weight
        for i, gain in enumerate((loss.box, loss.cls, loss.l1, loss.angle)):
            parts[i] += share * gain * sums[i] / normaliser
    return parts


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**31), st.lists(st.sampled_from(ROWS), max_size=5, unique_by=id), st.floats(0, 1))
def test_equals_the_loop(seed: int, rows: list[tuple[int, int, Rotated]], alpha: float) -> None:
    predictions, targets = make_predictions(seed, torch.float64), make_targets(rows, 6)
    loss = make_loss()
    loss.alpha.fill_(alpha)
    losses = loss(predictions, targets)
    expected = slow_parts(predictions, targets, GAINS, loss.alpha.item())
    torch.testing.assert_close(losses.parts, torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-6)
    assert losses.total.item() == pytest.approx(sum(expected), rel=1e-6)
    assert len(losses.parts) == len(PART_NAMES)


def test_value_by_hand() -> None:
    """One object, one cell of stride 16 and one class: the whole calculation fits in a comment."""
    loss = RotatedLoss(1, make_anchors(16, (16,)), GAINS, AssignerConfig())
    loss.alpha.fill_(0.75)
    # Centre (8, 8). Predicted 16 x 4 at angle 0; the object is the same turned by a quarter: 4 x 16.
    # Envelopes 0..16 x 6..10 and 6..10 x 0..16: intersection 16, union 112: w = 1/7; S = 1.
    # Gaussians with the variances (a, b) and (b, a), b = a / 16: det S' / det S = ((a + b) / 2)^2 / (a b) = 289 / 64,
    # B = ln(289 / 64) / 2, exp(-B) = 8 / 17, Hellinger sqrt(9 / 17).
    # The object as 16 x 4 at a quarter is as 4 x 16 at 0 nearest to the prediction: L1 = (12 + 12) / 16.
    # sin(2 * 90 degrees) = 0; BCE at logit 0, target 1/7: ln 2.
    branch = ObbBranch(torch.tensor([[[0.5, 0.125, 0.5, 0.125]]]), torch.zeros(1, 1, 1), torch.zeros(1, 1))
    losses = loss(ObbPredictions(branch, branch), make_targets([(0, 0, (8.0, 8.0, 16.0, 4.0, math.pi / 2))], 2))
    expected = torch.tensor([7.5 * math.sqrt(9 / 17) / 7, 0.5 * math.log(2), 6 * 1.5 / 7, 0.0])
    torch.testing.assert_close(losses.parts, expected, rtol=1e-5, atol=1e-6)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**31), st.integers(-4, 4), st.integers(-4, 4))
def test_equivalent_encodings_have_equal_losses_and_gradients(seed: int, of_target: int, of_prediction: int) -> None:
    predictions, targets = make_predictions(seed, torch.float64), make_targets(ROWS, 6)
    assert targets.rotated is not None
    targets.rotated = targets.rotated.double()
    other = Targets(targets.image_index, targets.classes, targets.boxes, targets.valid)
    other.rotated = turned(targets.rotated, of_target)
    same = ObbPredictions(*(turned_branch(branch, of_prediction) for branch in predictions))
    loss = make_loss()
    first, second = loss(predictions, targets), loss(same, other)
    torch.testing.assert_close(second.parts, first.parts, rtol=1e-7, atol=1e-9)
    gradients = torch.autograd.grad(first.total, leaves(predictions))
    for mine, its in zip(gradients, torch.autograd.grad(second.total, leaves(predictions)), strict=True):
        torch.testing.assert_close(its, mine, rtol=1e-6, atol=1e-9)


def turned(boxes: Tensor, quarters: int) -> Tensor:
    """The same rectangles, a number of quarter turns on."""
    x, y, w, h, theta = boxes.unbind(-1)
    w, h = (h, w) if quarters % 2 else (w, h)
    return torch.stack((x, y, w, h, theta + quarters * math.pi / 2), -1)


def turned_branch(branch: ObbBranch, quarters: int) -> ObbBranch:
    """The same predicted rectangles: distances of the box with its sides exchanged about the same centre."""
    left, top, right, bottom = branch.distances.unbind(-1)
    boxes = torch.stack(((right - left) / 2, (bottom - top) / 2, left + right, top + bottom, branch.angles), -1)
    x, y, w, h, theta = turned(boxes, quarters).unbind(-1)
    return ObbBranch(torch.stack((w / 2 - x, h / 2 - y, w / 2 + x, h / 2 + y), -1), branch.logits, theta)


def test_gradients_equal_numeric_ones() -> None:
    predictions, targets = make_predictions(1, torch.float64), make_targets(ROWS, 8)
    loss = make_loss()
    assignment = loss.assign(ObbBranch(*stack_outputs(*predictions)), targets)  # constant, as in forward

    def total(*flat: Tensor) -> Tensor:
        return loss.terms(ObbBranch(*stack_outputs(*rebuilt(list(flat)))), assignment, targets).sum(1)

    assert torch.autograd.gradcheck(total, leaves(predictions), fast_mode=True)


def test_a_step_against_the_gradient_lowers_the_loss() -> None:
    predictions, targets = make_predictions(3, torch.float64), make_targets(ROWS, 8)
    loss = make_loss()
    before = loss(predictions, targets)
    before.total.backward()
    moved = [(leaf - 1e-4 * leaf.grad).detach() for leaf in leaves(predictions) if leaf.grad is not None]
    assert len(moved) == 6
    assert loss(rebuilt(moved), targets).total < before.total


def test_descent_turns_a_box_into_place() -> None:
    """From upright squares to long boxes at several angles, also beyond an eighth of a turn."""
    wanted = [(18.0, 15.0, 20.0, 8.0, theta) for theta in (0.3, 0.9, 1.5, 2.2)]
    targets = make_targets([(image, 0, box) for image, box in enumerate(wanted)], 4)
    loss = RotatedLoss(1, make_anchors(32, (32,)), ObbLossConfig(), AssignerConfig())
    distances = torch.full((4, 1, 4), 0.25, requires_grad=True)
    angles = torch.zeros(4, 1, requires_grad=True)
    optimizer = torch.optim.Adam([distances, angles], lr=0.01)
    for _ in range(800):
        branch = ObbBranch(distances, torch.zeros(4, 1, 1), angles)
        optimizer.zero_grad()
        loss(ObbPredictions(branch, branch), targets).total.backward()
        optimizer.step()
    for sides, angle, box in zip(
        (32 * distances.detach()[:, 0]).tolist(), angles.flatten().tolist(), wanted, strict=True
    ):
        left, top, right, bottom = sides
        found = (16 + (right - left) / 2, 16 + (bottom - top) / 2, left + right, top + bottom, angle)
        assert slow_hellinger(found, box) < 0.1


@pytest.mark.parametrize("padded_to", [1, 16])
def test_only_empty_images_give_exact_zeros_with_gradients(padded_to: int) -> None:
    predictions = make_predictions(4)
    losses = make_loss()(predictions, make_targets([], padded_to))
    box, cls, l1, angle = losses.parts.tolist()
    assert (box, l1, angle) == (0.0, 0.0, 0.0)
    assert cls > 0
    losses.total.backward()
    for branch in predictions:
        for leaf in (branch.distances, branch.angles):
            assert leaf.grad is not None
            assert torch.equal(leaf.grad, torch.zeros_like(leaf))
        assert branch.logits.grad is not None
        assert (branch.logits.grad > 0).all()


def test_nan_outside_all_objects_reaches_no_gradient_but_inside_one_it_shows() -> None:
    targets = make_targets([(0, 0, (10.0, 10.0, 20.0, 12.0, 0.5))], 2)
    predictions = make_predictions(5)
    with torch.no_grad():
        predictions.one_to_many.distances[1] = torch.nan
        predictions.one_to_many.distances[0, 63] = torch.inf
        predictions.one_to_one.angles[1] = torch.nan
    losses = make_loss()(predictions, targets)
    losses.total.backward()
    assert all(leaf.grad is not None and torch.isfinite(leaf.grad).all() for leaf in leaves(predictions))
    for name, value in (("distances", torch.nan), ("angles", torch.nan)):
        predictions = make_predictions(5)
        with torch.no_grad():
            getattr(predictions.one_to_many, name)[0, 9] = value  # centre (12, 12)
        assert torch.isnan(make_loss()(predictions, targets).total)


@pytest.mark.parametrize("distance", [1e-9, 1e-4, -3.0, 0.5, 300.0])
@pytest.mark.parametrize("angle", [0.0, math.pi / 4, -1e4])
def test_squares_and_tiny_inverted_and_huge_boxes_have_bounded_gradients(distance: float, angle: float) -> None:
    predictions = make_predictions(6)
    with torch.no_grad():
        for branch in predictions:
            branch.distances[:, ::2] = distance
            branch.angles[:, ::2] = angle
    losses = make_loss()(predictions, make_targets(ROWS, 8))
    losses.total.backward()
    assert torch.isfinite(losses.total)
    for leaf in leaves(predictions):
        assert leaf.grad is not None
        assert leaf.grad.abs().max() < 50.0


def test_perfect_predictions_have_no_loss_but_that_of_classes() -> None:
    targets = make_targets(ROWS[:1], 1)
    x, y, width, height, theta = ROWS[0][2]
    reach = torch.tensor([width / 2, height / 2, width / 2, height / 2])
    offset = torch.tensor([x, y]) - ANCHORS.centers
    distances = (reach + torch.cat((-offset, offset), -1)) / ANCHORS.strides[:, None]
    shape = (BATCH, len(ANCHORS))
    branch = ObbBranch(distances.expand(*shape, 4), torch.zeros(*shape, CLASSES), torch.full(shape, theta - math.pi))
    box, _, l1, angle = make_loss()(ObbPredictions(branch, branch), targets).parts.tolist()
    assert box < 1e-4
    assert l1 < 1e-4
    assert angle < 1e-9


def test_float32_inside_autocast() -> None:
    targets, predictions = make_targets(ROWS, 8), make_predictions(7, torch.bfloat16)
    widened = ObbPredictions(*(ObbBranch(*(t.detach().float() for t in branch)) for branch in predictions))
    with torch.autocast("cpu", torch.bfloat16):
        losses = make_loss()(predictions, targets)
    assert losses.total.dtype == losses.parts.dtype == torch.float32
    assert losses.total.item() == make_loss()(widened, targets).total.item()


def test_step_reads_nothing_from_the_device_and_stays_below_its_number_of_kernels() -> None:
    predictions, targets, loss = make_predictions(8, torch.bfloat16), make_targets(ROWS, 8), make_loss()
    with Watch() as forward, torch.autocast("cpu", torch.bfloat16):
        total = loss(predictions, targets).total
    with Watch() as backward:
        total.backward()
    assert forward.launched.total() <= 280, forward.launched.total()
    assert forward.launched.total() + backward.launched.total() <= 480, backward.launched.total()
    scattered = {"index_put", "index_put_", "_index_put_impl_", "scatter_add_", "index_add_"}
    assert not scattered & set(backward.launched)
