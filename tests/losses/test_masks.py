"""The cross-entropy of masks against a loop over masks and cells, and against autograd through the whole logits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from lucid_yolo.losses.masks import bit_places, mask_bce, pick_rows, unpack

BATCH, COUNT, MAPS, SIDE, ROWS = 2, 5, 3, 8, 4
PLACES = bit_places(torch.device("cpu"))


def make_case(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    coefficients = torch.randn(BATCH, COUNT, MAPS, generator=generator, dtype=torch.float64)
    prototypes = torch.randn(BATCH, MAPS, SIDE, SIDE, generator=generator, dtype=torch.float64)
    masks = torch.randint(0, 256, (ROWS, SIDE, SIDE // 8), generator=generator, dtype=torch.uint8)
    rows = torch.randint(0, ROWS, (BATCH, COUNT), generator=generator)
    low = torch.rand(BATCH, COUNT, 2, generator=generator, dtype=torch.float64) * 6 - 1
    high = low + torch.rand(BATCH, COUNT, 2, generator=generator, dtype=torch.float64) * 6
    boxes = torch.cat((low, high), -1)
    boxes[0, 0] = torch.tensor([1.5, 2.0, 4.5, 6.5])  # edges on centres: the first belongs to the box, the last not
    boxes[1, 1] = 0.0
    return coefficients.requires_grad_(), prototypes.requires_grad_(), masks, rows, boxes


def slow(coefficients: Tensor, prototypes: Tensor, masks: Tensor, rows: Tensor, boxes: Tensor) -> list[list[float]]:
    """One mask and one cell at a time."""
    result = []
    for image in range(BATCH):
        sums = []
        for slot in range(COUNT):
            left, top, right, bottom = boxes[image, slot].tolist()
            truth, total = masks[rows[image, slot]].tolist(), 0.0
            for y in range(SIDE):
                for x in range(SIDE):
                    if left <= x + 0.5 < right and top <= y + 0.5 < bottom:
                        logit = sum(
                            coefficients[image, slot, m].item() * prototypes[image, m, y, x].item() for m in range(MAPS)
                        )
                        probability = 1 / (1 + math.exp(-logit))
                        covered = truth[y][x // 8] >> (7 - x % 8) & 1
                        total -= math.log(probability if covered else 1 - probability)
            sums.append(total)
        result.append(sums)
    return result


@pytest.mark.parametrize("seed", range(3))
def test_equals_the_loop(seed: int) -> None:
    case = make_case(seed)
    found = mask_bce(*case)
    torch.testing.assert_close(found, torch.tensor(slow(*case), dtype=torch.float64))
    assert found[1, 1].item() == 0.0


@pytest.mark.parametrize("at_once", [1, 2, 32])
def test_gradients_equal_numeric_ones(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid_yolo.losses.masks._AT_ONCE", at_once)
    coefficients, prototypes, *rest = make_case(4)
    assert torch.autograd.gradcheck(lambda c, p: mask_bce(c, p, *rest), (coefficients, prototypes))


def test_many_masks_equal_autograd_through_all_logits() -> None:
    """More masks than are computed at once, in float32 and channels_last memory, as a network gives prototypes."""
    generator = torch.Generator().manual_seed(0)
    coefficients = torch.randn(2, 70, 32, generator=generator).requires_grad_()
    prototypes = torch.randn(2, 32, 16, 16, generator=generator).to(memory_format=torch.channels_last).requires_grad_()
    masks = torch.randint(0, 256, (9, 16, 2), generator=generator, dtype=torch.uint8)
    rows = torch.randint(0, 9, (2, 70), generator=generator)
    low = torch.randint(0, 10, (2, 70, 2), generator=generator)
    boxes = torch.cat((low, low + 5), -1).float()
    weights = torch.rand(2, 70, generator=generator)
    found = mask_bce(coefficients, prototypes, masks, rows, boxes)
    gradients = torch.autograd.grad((found * weights).sum(), (coefficients, prototypes))
    assert gradients[1].is_contiguous(memory_format=torch.channels_last)

    logits = torch.einsum("bkm,bmhw->bkhw", coefficients, prototypes)
    truth = torch.from_numpy(np.unpackbits(masks.numpy(), axis=-1)).float()[rows]
    every = F.binary_cross_entropy_with_logits(logits, truth, reduction="none")
    x = torch.arange(16) + 0.5
    across = (x >= boxes[..., 0:1]) & (x < boxes[..., 2:3])
    down = (x >= boxes[..., 1:2]) & (x < boxes[..., 3:4])
    expected = (every * across.unsqueeze(-2) * down.unsqueeze(-1)).sum((-2, -1))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
    wanted = torch.autograd.grad((expected * weights).sum(), (coefficients, prototypes))
    for one, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_nothing_outside_of_the_boxes_reaches_sums_or_gradients() -> None:
    coefficients, prototypes, masks, rows, _ = make_case(5)
    boxes = torch.zeros(BATCH, COUNT, 4, dtype=torch.float64)
    boxes[0] = torch.tensor([2.0, 2.0, 5.0, 5.0])
    with torch.no_grad():
        prototypes[0, :, 6:] = torch.nan
        prototypes[1] = torch.inf  # an image without any box
    found = mask_bce(coefficients, prototypes, masks, rows, boxes)
    assert torch.isfinite(found).all()
    assert (found[1] == 0).all()
    found.sum().backward()
    assert prototypes.grad is not None
    assert torch.isfinite(prototypes.grad).all()
    assert not prototypes.grad[1].any()
    assert prototypes.grad[0, :, 2:5, 2:5].all()
    assert prototypes.grad[0].count_nonzero() == MAPS * 9


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31))
def test_unpack_equals_numpy(seed: int) -> None:
    packed = np.random.default_rng(seed).integers(0, 256, (2, 3, 2), dtype=np.uint8)
    np.testing.assert_array_equal(unpack(torch.from_numpy(packed), PLACES).numpy(), np.unpackbits(packed, axis=-1))


def test_picked_rows_give_their_gradient_back() -> None:
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(3, 11, 4, generator=generator, dtype=torch.float64).requires_grad_()
    positions = torch.stack([torch.randperm(11, generator=generator)[:6] for _ in range(3)])
    weights = torch.randn(3, 6, 4, generator=generator, dtype=torch.float64)
    picked = pick_rows(values, positions)
    expected = torch.take_along_dim(values, positions.unsqueeze(-1), 1)
    assert torch.equal(picked, expected)
    (found,) = torch.autograd.grad((picked * weights).sum(), values)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), values)
    assert torch.equal(found, wanted)
