"""The dense loss against a loop from its formula, a value by hand, gradients, and what recording it needs."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lucid_yolo.config.tasks import AssignerConfig, LossConfig
from lucid_yolo.data.batch import Targets
from lucid_yolo.losses.detection import PART_NAMES, DetectionLoss, alpha_at, stack_branches
from lucid_yolo.nn.predictions import BranchPredictions, Predictions
from lucid_yolo.ops.anchors import make_anchors
from tests.assign.assignment_loop import overlap, slow_assignment
from tests.losses.dispatch import Watch

SIZE, CLASSES, BATCH = 64, 3, 2
ANCHORS = make_anchors(SIZE, (8, 16, 32))
GAINS = LossConfig(box=7.5, cls=0.5, l1=6.0)  # the hand-made values below belong to these
ROWS = [
    (0, 1, [4.0, 6.0, 40.0, 30.0]),
    (0, 2, [20.0, 10.0, 62.0, 60.0]),
    (1, 0, [30.0, 30.0, 33.0, 34.0]),
    (1, 0, [2.0, 3.0, 23.0, 50.0]),
    (1, 1, [10.0, 5.0, 29.0, 44.0]),
]


def make_loss() -> DetectionLoss:
    return DetectionLoss(CLASSES, ANCHORS, GAINS, AssignerConfig())


def make_targets(rows: list[tuple[int, int, list[float]]], padded_to: int) -> Targets:
    pad = padded_to - len(rows)
    return Targets(
        image_index=torch.tensor([r[0] for r in rows] + [0] * pad),
        classes=torch.tensor([r[1] for r in rows] + [0] * pad),
        boxes=torch.tensor([r[2] for r in rows] + [[0.0] * 4] * pad).view(-1, 4),
        valid=torch.tensor([True] * len(rows) + [False] * pad),
    )


def make_predictions(seed: int, dtype: torch.dtype = torch.float32) -> Predictions:
    generator = torch.Generator().manual_seed(seed)
    branches = []
    for _ in range(2):
        distances = torch.rand(BATCH, len(ANCHORS), 4, generator=generator, dtype=torch.float64) * 3 + 0.2
        logits = torch.randn(BATCH, len(ANCHORS), CLASSES, generator=generator, dtype=torch.float64)
        branches.append(BranchPredictions(distances.to(dtype).requires_grad_(), logits.to(dtype).requires_grad_()))
    return Predictions(*branches)


def leaves(predictions: Predictions) -> list[Tensor]:
    return [tensor for branch in predictions for tensor in branch]


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def slow_ciou(p: list[float], t: list[float]) -> float:
    """CIoU of arXiv 1911.08287 on xyxy corners."""
    rho2 = ((p[0] + p[2] - t[0] - t[2]) / 2) ** 2 + ((p[1] + p[3] - t[1] - t[3]) / 2) ** 2
    c2 = (max(p[2], t[2]) - min(p[0], t[0])) ** 2 + (max(p[3], t[3]) - min(p[1], t[1])) ** 2
    v = 4 / math.pi**2 * (math.atan((t[2] - t[0]) / (t[3] - t[1])) - math.atan((p[2] - p[0]) / (p[3] - p[1]))) ** 2
    u = overlap(p, t)
    return u - rho2 / c2 - (v * v / (1 - u + v) if v else 0.0)


def slow_parts(predictions: Predictions, targets: Targets, loss: LossConfig, alpha: float) -> list[float]:
    """The three terms of both branches, one anchor and class at a time."""
    parts = [0.0, 0.0, 0.0]
    for branch, share in enumerate((alpha, 1 - alpha)):
        distances, logits = (t.detach().double() for t in predictions[branch])
        scale = ANCHORS.strides.view(-1, 1).double()
        low = ANCHORS.centers - distances[..., :2] * scale
        boxes = torch.cat((low, ANCHORS.centers + distances[..., 2:] * scale), -1)
        found = slow_assignment(
            torch.stack((logits, logits)), torch.stack((boxes, boxes)), ANCHORS.centers, targets, AssignerConfig()
        ).found
        mine = {(image, a): value for (b, image, a), value in found.items() if b == branch}
        normaliser = max(sum(w for _, w in mine.values()), 1.0)
        box = cls = l1 = 0.0
        for image in range(BATCH):
            for a in range(len(ANCHORS)):
                row, weight = mine.get((image, a), (None, 0.0))
                for c in range(CLASSES):
                    x = logits[image, a, c].item()
                    y = weight if row is not None and targets.classes[row] == c else 0.0
                    cls += softplus(x) - x * y
                if row is not None:
                    p, t = boxes[image, a].tolist(), targets.boxes[row].tolist()
                    box += (1 - slow_ciou(p, t)) * weight
                    l1 += sum(abs(i - j) for i, j in zip(p, t, strict=True)) / ANCHORS.strides[a].item() * weight
        for i, (gain, value) in enumerate(((loss.box, box), (loss.cls, cls), (loss.l1, l1))):
            parts[i] += share * gain * value / normaliser
    return parts


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**31), st.lists(st.sampled_from(ROWS), max_size=5, unique_by=id), st.floats(0, 1))
def test_equals_the_loop(seed: int, rows: list[tuple[int, int, list[float]]], alpha: float) -> None:
    predictions, targets = make_predictions(seed, torch.float64), make_targets(rows, 6)
    loss = make_loss()
    loss.alpha.fill_(alpha)
    losses = loss(predictions, targets)
    expected = slow_parts(predictions, targets, GAINS, loss.alpha.item())
    torch.testing.assert_close(losses.parts, torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-6)
    assert losses.total.item() == pytest.approx(sum(expected), rel=1e-6)
    assert not losses.parts.requires_grad


def test_value_by_hand() -> None:
    """One object, one cell of stride 16 and one class: the whole calculation fits in a comment."""
    loss = DetectionLoss(1, make_anchors(16, (16,)), GAINS, AssignerConfig())
    loss.alpha.fill_(0.75)
    # Centre (8, 8). Predicted 4 px to each side: 4..12 x 4..12; the object is 2..14 x 2..14 (area 144).
    # IoU 64 / 144 = 4/9, same centre and aspect: CIoU 4/9. The only anchor weighs its IoU, w = 4/9; S = 1.
    # box 7.5 * 5/9 * 4/9; L1 6 * (4 * 2 / 16) * 4/9; BCE at logit 0, target 4/9: 0.5 * ln 2. Both branches alike.
    branch = BranchPredictions(torch.full((1, 1, 4), 0.25), torch.zeros(1, 1, 1))
    losses = loss(Predictions(branch, branch), make_targets([(0, 0, [2.0, 2.0, 14.0, 14.0])], 2))
    expected = torch.tensor([7.5 * 20 / 81, 0.5 * math.log(2), 6 * 0.5 * 4 / 9])
    torch.testing.assert_close(losses.parts, expected, rtol=1e-5, atol=1e-6)


def test_gradients_equal_numeric_ones() -> None:
    predictions, targets = make_predictions(1, torch.float64), make_targets(ROWS, 8)
    loss = make_loss()
    assignment = loss.assign(stack_branches(predictions), targets)  # constant for the gradient, as in forward

    def total(*flat: Tensor) -> Tensor:
        stacked = stack_branches(Predictions(BranchPredictions(*flat[:2]), BranchPredictions(*flat[2:])))
        return loss.terms(stacked, assignment, targets).sum(1)[1:]  # class and L1; CIoU has a constant aspect weight

    assert torch.autograd.gradcheck(total, leaves(predictions), fast_mode=True)


def test_forward_gives_the_gradient_of_its_terms() -> None:
    predictions, targets = make_predictions(2), make_targets(ROWS, 8)
    loss = make_loss()
    loss(predictions, targets).total.backward()
    stacked = stack_branches(predictions)
    terms = loss.terms(stacked, loss.assign(stacked, targets), targets)
    for leaf, expected in zip(leaves(predictions), torch.autograd.grad(terms.sum(), leaves(predictions)), strict=True):
        torch.testing.assert_close(leaf.grad, expected, rtol=1e-5, atol=1e-7)


def test_a_step_against_the_gradient_lowers_every_term() -> None:
    predictions, targets = make_predictions(3, torch.float64), make_targets(ROWS, 8)
    loss = make_loss()
    before = loss(predictions, targets)
    before.total.backward()
    moved = [(leaf - 1e-4 * leaf.grad).detach() for leaf in leaves(predictions) if leaf.grad is not None]
    after = loss(Predictions(BranchPredictions(*moved[:2]), BranchPredictions(*moved[2:])), targets)
    assert after.total < before.total


@pytest.mark.parametrize("padded_to", [1, 16])
def test_only_empty_images_give_exact_zeros_with_gradients(padded_to: int) -> None:
    predictions = make_predictions(4)
    losses = make_loss()(predictions, make_targets([], padded_to))
    box, cls, l1 = losses.parts.tolist()
    assert (box, l1) == (0.0, 0.0)
    assert cls > 0
    losses.total.backward()
    for branch in predictions:
        assert branch.distances.grad is not None
        assert branch.logits.grad is not None
        assert torch.equal(branch.distances.grad, torch.zeros_like(branch.distances))
        assert torch.isfinite(branch.logits.grad).all()
        assert (branch.logits.grad > 0).all()  # every probability is pushed down


def test_nan_outside_all_objects_reaches_no_gradient_but_inside_one_it_shows() -> None:
    targets = make_targets([(0, 0, [0.0, 0.0, 20.0, 20.0])], 2)
    predictions = make_predictions(5)
    with torch.no_grad():
        predictions.one_to_many.distances[1] = torch.nan
        predictions.one_to_many.distances[0, 63] = torch.inf
    losses = make_loss()(predictions, targets)
    losses.total.backward()
    assert all(leaf.grad is not None and torch.isfinite(leaf.grad).all() for leaf in leaves(predictions))
    with torch.no_grad():
        predictions.one_to_many.distances[0, 0] = torch.nan
    assert torch.isnan(make_loss()(predictions, targets).total)


def test_collapsed_and_inverted_boxes_have_bounded_gradients() -> None:
    predictions = make_predictions(6)
    with torch.no_grad():
        for branch in predictions:
            branch.distances[:, ::2] = 1e-9
            branch.distances[:, 1::4] = -3.0
    make_loss()(predictions, make_targets(ROWS, 8)).total.backward()
    for branch in predictions:
        assert branch.distances.grad is not None
        assert branch.distances.grad.abs().max() < 50.0


def test_float32_inside_autocast() -> None:
    targets = make_targets(ROWS, 8)
    predictions = make_predictions(7, torch.bfloat16)
    widened = Predictions(*(BranchPredictions(*(t.detach().float() for t in branch)) for branch in predictions))
    with torch.autocast("cpu", torch.bfloat16):
        losses = make_loss()(predictions, targets)
    assert losses.total.dtype == losses.parts.dtype == torch.float32
    assert losses.total.item() == make_loss()(widened, targets).total.item()
    losses.total.backward()
    assert all(leaf.grad is not None and leaf.grad.dtype == torch.bfloat16 for leaf in leaves(predictions))


def test_alpha_runs_from_start_to_end() -> None:
    config = LossConfig()
    assert [alpha_at(e, 8, config) for e in (0, 7)] == pytest.approx([0.8, 0.1])
    assert alpha_at(2, 5, config) == pytest.approx(0.45)
    assert alpha_at(0, 1, config) == pytest.approx(0.8)
    assert alpha_at(9, 5, config) == pytest.approx(0.1)


def test_epoch_fills_the_same_buffer_and_no_state_is_saved() -> None:
    loss = make_loss()
    address = loss.alpha.data_ptr()
    loss.set_epoch(4, 5)
    assert loss.alpha.data_ptr() == address
    assert loss.alpha.item() == pytest.approx(0.1)
    assert loss.state_dict() == {}
    assert copy.deepcopy(loss).alpha.data_ptr() != address
    assert len(PART_NAMES) == 3


def test_step_reads_nothing_from_the_device_and_stays_below_its_number_of_kernels() -> None:
    predictions, targets, loss = make_predictions(8, torch.bfloat16), make_targets(ROWS, 8), make_loss()
    with Watch() as forward, torch.autocast("cpu", torch.bfloat16):
        total = loss(predictions, targets).total
    with Watch() as backward:
        total.backward()
    assert forward.launched.total() <= 170, forward.launched
    assert forward.launched.total() + backward.launched.total() <= 260, backward.launched


def test_the_watch_can_fail() -> None:
    values = torch.arange(4.0)
    for read in (lambda: values.sum().item(), lambda: values[values > 1], lambda: torch.nonzero(values)):
        with pytest.raises(AssertionError, match="waits for the device"), Watch():
            read()
