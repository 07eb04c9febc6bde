"""The segmentation loss against a loop from its formula, gradients, and what recording and compiling it need."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lucid_yolo.config.tasks import AssignerConfig, SegmentLossConfig
from lucid_yolo.data.batch import Targets
from lucid_yolo.losses.detection import DetectionLoss
from lucid_yolo.losses.segmentation import (
    PART_NAMES,
    SegmentationLoss,
    choose_mask_slots,
    class_maps,
    semantic_loss,
    stack_detections,
)
from lucid_yolo.nn.predictions import BranchPredictions, Predictions, SegmentBranch, SegmentPredictions
from lucid_yolo.ops.anchors import make_anchors
from tests.losses.dispatch import Watch

SIZE, CLASSES, BATCH, MAPS = 64, 3, 2, 32
SIDE = SIZE // 4
ANCHORS = make_anchors(SIZE, (8, 16, 32))
ROWS = [
    (0, 1, [4.0, 6.0, 40.0, 30.0]),
    (0, 2, [20.0, 10.0, 62.0, 60.0]),
    (1, 0, [30.0, 30.0, 33.0, 34.0]),
    (1, 0, [2.0, 3.0, 23.0, 50.0]),
    (1, 1, [10.0, 5.0, 29.0, 44.0]),
]


def make_loss(**settings: float) -> SegmentationLoss:
    return SegmentationLoss(CLASSES, ANCHORS, SegmentLossConfig(**settings), AssignerConfig())


def make_targets(rows: list[tuple[int, int, list[float]]], padded_to: int, seed: int = 0) -> Targets:
    """Random masks: what is outside of a box is not empty, so that cropping shows."""
    pad = padded_to - len(rows)
    generator = torch.Generator().manual_seed(seed)
    masks = torch.randint(0, 256, (padded_to, SIDE, SIDE // 8), generator=generator, dtype=torch.uint8)
    masks[len(rows) :] = 0
    return Targets(
        image_index=torch.tensor([r[0] for r in rows] + [0] * pad),
        classes=torch.tensor([r[1] for r in rows] + [0] * pad),
        boxes=torch.tensor([r[2] for r in rows] + [[0.0] * 4] * pad).view(-1, 4),
        valid=torch.tensor([True] * len(rows) + [False] * pad),
        masks=masks,
    )


def make_predictions(seed: int, dtype: torch.dtype = torch.float32, maps: int = MAPS) -> SegmentPredictions:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    branches = []
    for _ in range(2):
        distances = torch.rand(BATCH, len(ANCHORS), 4, generator=generator, dtype=torch.float64) * 3 + 0.2
        branches.append(
            SegmentBranch(
                distances.to(dtype).requires_grad_(),
                draw(BATCH, len(ANCHORS), CLASSES),
                draw(BATCH, len(ANCHORS), maps),
            )
        )
    return SegmentPredictions(*branches, draw(BATCH, maps, SIDE, SIDE), draw(BATCH, CLASSES, SIDE // 2, SIDE // 2))


def leaves(predictions: SegmentPredictions) -> list[Tensor]:
    return [*predictions.one_to_many, *predictions.one_to_one, predictions.prototypes, predictions.semantic]


def rebuilt(flat: list[Tensor]) -> SegmentPredictions:
    return SegmentPredictions(SegmentBranch(*flat[:3]), SegmentBranch(*flat[3:6]), *flat[6:])


def bit(masks: Tensor, row: int, y: int, x: int) -> int:
    return int(masks[row, y, x // 8].item()) >> (7 - x % 8) & 1


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def slow_mask_term(predictions: SegmentPredictions, loss: SegmentationLoss, targets: Targets, alpha: float) -> float:
    """One positive and one cell at a time."""
    assert targets.masks is not None
    assignment = loss.detection.assign(stack_detections(predictions), targets)
    result = 0.0
    limits = (loss.config.mask_slots_one_to_many, loss.config.mask_slots_one_to_one)
    for branch, (share, limit) in enumerate(zip((alpha, 1 - alpha), limits, strict=True)):
        coefficients, means = predictions[branch].coefficients, []
        for image in range(BATCH):
            mine = [a for a in range(len(ANCHORS)) if assignment.positive[branch, image, a]]
            mine.sort(key=lambda a: -assignment.weight[branch, image, a].item())
            for anchor in mine[:limit]:
                row = int(assignment.row[branch, image, anchor])
                left, top, right, bottom = (v / 4 for v in targets.boxes[row].tolist())
                logits = (coefficients[image, anchor, :, None, None] * predictions.prototypes[image]).sum(0)
                total = 0.0
                for y in range(SIDE):
                    for x in range(SIDE):
                        if left <= x + 0.5 < right and top <= y + 0.5 < bottom:
                            value = logits[y, x].item()
                            total += softplus(value) - value * bit(targets.masks, row, y, x)
                means.append(total / max((right - left) * (bottom - top), 1.0))
        result += share * sum(means) / max(len(means), 1)
    return result * loss.config.mask


def slow_semantic_term(predictions: SegmentPredictions, targets: Targets) -> float:
    """One class and one cell at a time."""
    assert targets.masks is not None
    bce, dice = [], []
    for image in range(BATCH):
        for label in range(CLASSES):
            rows = [r for r in range(len(targets.valid)) if targets.valid[r]]
            rows = [r for r in rows if targets.image_index[r] == image and targets.classes[r] == label]
            overlap = total = 0.0
            for y in range(SIDE // 2):
                for x in range(SIDE // 2):
                    cells = [(2 * y + i, 2 * x + j) for i in (0, 1) for j in (0, 1)]
                    truth = float(any(bit(targets.masks, r, *cell) for r in rows for cell in cells))
                    value = predictions.semantic[image, label, y, x].item()
                    probability = 1 / (1 + math.exp(-value))
                    bce.append(softplus(value) - value * truth)
                    overlap += probability * truth
                    total += probability + truth
            dice.append(1 - (2 * overlap + 1) / (total + 1))
    return 0.5 * (sum(bce) / len(bce) + sum(dice) / len(dice))


@settings(deadline=None, max_examples=8)
@given(
    st.integers(0, 2**31),
    st.lists(st.sampled_from(ROWS), max_size=5, unique_by=id),
    st.floats(0, 1),
    st.sampled_from([2, 5, 96]),
)
def test_equals_the_loop(seed: int, rows: list[tuple[int, int, list[float]]], alpha: float, slots: int) -> None:
    predictions, targets = make_predictions(seed, torch.float64, maps=4), make_targets(rows, 6, seed)
    loss = make_loss(mask_slots_one_to_many=slots, mask_slots_one_to_one=slots)
    loss.alpha.fill_(alpha)
    with torch.no_grad():
        losses = loss(predictions, targets)
        expected = [
            slow_mask_term(predictions, loss, targets, loss.alpha.item()),
            slow_semantic_term(predictions, targets),
        ]
    torch.testing.assert_close(losses.parts[3:], torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(losses.total, losses.parts.sum())


def test_boxes_and_classes_are_learned_as_in_detection() -> None:
    predictions, targets = make_predictions(1), make_targets(ROWS, 8)
    loss = make_loss()
    plain = DetectionLoss(CLASSES, ANCHORS, loss.config, AssignerConfig())
    branches = (BranchPredictions(*predictions[branch][:2]) for branch in range(2))
    assert torch.equal(loss(predictions, targets).parts[:3], plain(Predictions(*branches), targets).parts)
    assert PART_NAMES == ("box", "cls", "l1", "mask", "semantic")


def test_a_mask_by_hand() -> None:
    """One object of 8 x 8 px on one cell of stride 16: two by two cells of the mask, three of them covered."""
    loss = SegmentationLoss(1, make_anchors(32, (32,)), SegmentLossConfig(), AssignerConfig())
    loss.alpha.fill_(0.75)
    masks = torch.zeros(1, 8, 1, dtype=torch.uint8)
    masks[0, 3], masks[0, 4] = 0b00011000, 0b00010000
    targets = Targets(
        image_index=torch.zeros(1, dtype=torch.int64),
        classes=torch.zeros(1, dtype=torch.int64),
        boxes=torch.tensor([[12.0, 12.0, 20.0, 20.0]]),
        valid=torch.ones(1, dtype=torch.bool),
        masks=masks,
    )
    # Logit 2 x 0.5 = 1 in all cells: three times softplus(-1) and once softplus(1), over an area of 4.
    branch = SegmentBranch(torch.full((1, 1, 4), 0.125), torch.zeros(1, 1, 1), torch.full((1, 1, 1), 2.0))
    predictions = SegmentPredictions(branch, branch, torch.full((1, 1, 8, 8), 0.5), torch.zeros(1, 1, 4, 4))
    parts = loss(predictions, targets).parts
    assert parts[3].item() == pytest.approx(2.5 * (3 * softplus(-1.0) + softplus(1.0)) / 4, rel=1e-6)
    # Pooled: columns 1 and 2 (cells 3 and 4) of rows 1 and 2, all but the last one. Of 16 cells at 1/2, 3 are covered.
    assert parts[4].item() == pytest.approx(0.5 * (math.log(2) + 1 - (2 * 1.5 + 1) / (8 + 3 + 1)), rel=1e-6)


def test_slots_are_the_anchors_of_the_largest_weight() -> None:
    predictions, targets = make_predictions(2), make_targets(ROWS, 8)
    assignment = make_loss().detection.assign(stack_detections(predictions), targets)
    for branch in range(2):
        positive, weight = assignment.positive[branch], assignment.weight[branch]
        few, all_of_them = choose_mask_slots(assignment, branch, 4), choose_mask_slots(assignment, branch, 1000)
        assert all_of_them.anchors.shape == (BATCH, len(ANCHORS))
        assert torch.equal(all_of_them.used.sum(1), positive.sum(1))
        for image in range(BATCH):
            best = sorted(weight[image][positive[image]].tolist(), reverse=True)[:4]
            used = few.used[image]
            assert weight[image, few.anchors[image][used]].tolist() == best
            assert torch.equal(few.rows[image][used], assignment.row[branch, image, few.anchors[image][used]])
            assert len(set(few.anchors[image].tolist())) == 4


def test_class_maps_do_not_mix_images_or_classes() -> None:
    targets = make_targets([(1, 2, [0.0] * 4), (0, 2, [0.0] * 4), (1, 2, [0.0] * 4)], 5)
    assert targets.masks is not None
    targets.masks.zero_()
    targets.masks[0, 3, 1], targets.masks[1, 0, 0], targets.masks[2, 15, 1] = 0b01000000, 0b10000000, 0b00000011
    maps = class_maps(targets, BATCH, CLASSES).view(BATCH, CLASSES, 8, 8)
    assert maps.nonzero().tolist() == [[0, 2, 0, 0], [1, 2, 1, 4], [1, 2, 7, 7]]


def test_perfect_class_maps_cost_nothing_and_inverted_ones_much() -> None:
    maps = torch.randint(0, 2, (2, 3, 64), generator=torch.Generator().manual_seed(0))
    logits = 40.0 * (2 * maps - 1)
    assert semantic_loss(logits, maps).item() == pytest.approx(0.0, abs=1e-6)
    assert semantic_loss(-logits, maps).item() == pytest.approx(40 + 1 - 1 / 65, rel=1e-3)


def test_gradients_equal_numeric_ones() -> None:
    predictions, targets = make_predictions(3, torch.float64, maps=3), make_targets(ROWS, 8)
    loss = make_loss(mask_slots_one_to_many=7, mask_slots_one_to_one=3)
    assignment = loss.detection.assign(stack_detections(predictions), targets)  # constant for the gradient

    def total(*flat: Tensor) -> Tensor:
        moved = rebuilt(list(flat))
        return loss.terms(moved, stack_detections(moved), assignment, targets)[1:]  # CIoU has a constant aspect weight

    assert torch.autograd.gradcheck(total, leaves(predictions), fast_mode=True)


@pytest.mark.parametrize("padded_to", [1, 16])
def test_only_empty_images_give_exact_zeros_with_gradients(padded_to: int) -> None:
    predictions = make_predictions(4)
    losses = make_loss()(predictions, make_targets([], padded_to))
    assert losses.parts[[0, 2, 3]].tolist() == [0.0, 0.0, 0.0]
    assert losses.parts[4] > 0
    losses.total.backward()
    assert all(leaf.grad is not None and torch.isfinite(leaf.grad).all() for leaf in leaves(predictions))
    for leaf in (predictions.one_to_many.coefficients, predictions.one_to_one.coefficients, predictions.prototypes):
        assert leaf.grad is not None
        assert not leaf.grad.any()


def test_anchors_without_an_object_do_not_matter() -> None:
    targets = make_targets([(0, 0, [0.0, 0.0, 20.0, 20.0])], 2)
    predictions = make_predictions(5)
    with torch.no_grad():
        predictions.one_to_many.coefficients[1] = torch.nan
        predictions.one_to_one.coefficients[0, 63] = torch.inf
    losses = make_loss()(predictions, targets)
    losses.total.backward()
    assert torch.isfinite(losses.parts).all()
    assert all(leaf.grad is not None and torch.isfinite(leaf.grad).all() for leaf in leaves(predictions))
    with torch.no_grad():
        predictions.one_to_many.coefficients[0] = torch.nan
    assert torch.isnan(make_loss()(predictions, targets).total)


def test_float32_inside_autocast() -> None:
    targets, predictions = make_targets(ROWS, 8), make_predictions(6, torch.bfloat16)
    widened = rebuilt([leaf.detach().float() for leaf in leaves(predictions)])
    with torch.autocast("cpu", torch.bfloat16):
        losses = make_loss()(predictions, targets)
    assert losses.total.dtype == losses.parts.dtype == torch.float32
    assert losses.total.item() == make_loss()(widened, targets).total.item()
    losses.total.backward()
    assert all(leaf.grad is not None and leaf.grad.dtype == torch.bfloat16 for leaf in leaves(predictions))


def test_epoch_fills_the_same_buffer_and_no_state_is_saved() -> None:
    loss = make_loss()
    address = loss.alpha.data_ptr()
    loss.set_epoch(4, 5)
    assert loss.alpha.data_ptr() == address
    assert loss.alpha.item() == pytest.approx(0.1)
    assert loss.state_dict() == {}
    assert copy.deepcopy(loss).alpha.data_ptr() != address


def test_a_network_in_evaluation_mode_is_refused() -> None:
    predictions = make_predictions(7)._replace(semantic=())
    with pytest.raises(AssertionError, match="evaluation mode"):
        make_loss()(predictions, make_targets(ROWS, 8))


def test_step_reads_nothing_from_the_device_and_stays_below_its_number_of_kernels() -> None:
    predictions, targets, loss = make_predictions(8, torch.bfloat16), make_targets(ROWS, 8), make_loss()
    with Watch() as forward, torch.autocast("cpu", torch.bfloat16):
        total = loss(predictions, targets).total
    with Watch() as backward:
        total.backward()
    print(forward.launched.total(), backward.launched.total())
    assert forward.launched.total() <= 300, forward.launched
    assert forward.launched.total() + backward.launched.total() <= 480, backward.launched
