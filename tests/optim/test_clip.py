from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from lucid_yolo.optim.clip import clip_gradients
from tests.optim.helpers import READS, Recorder, make_network, set_gradients


def vectors(*gradients: list[float] | None) -> list[nn.Parameter]:
    parameters = [nn.Parameter(torch.zeros(len(g) if g else 1)) for g in gradients]
    for p, g in zip(parameters, gradients, strict=True):
        p.grad = None if g is None else torch.tensor(g)
    return parameters


def test_by_hand() -> None:
    one, frozen, other = vectors([3.0, 0.0], None, [4.0])
    assert clip_gradients([one, frozen, other], 1.0).item() == pytest.approx(5.0)
    torch.testing.assert_close(one.grad, torch.tensor([0.6, 0.0]))
    torch.testing.assert_close(other.grad, torch.tensor([0.8]))
    assert frozen.grad is None


@pytest.mark.parametrize("max_norm", [None, 0.0, -1.0, 5.1])
def test_gradients_within_the_limit_stay(max_norm: float | None) -> None:
    (p,) = vectors([3.0, 4.0])
    assert clip_gradients([p], max_norm).item() == pytest.approx(5.0)
    assert torch.equal(p.grad, torch.tensor([3.0, 4.0]))


@pytest.mark.parametrize("max_norm", [0.1, 10.0, 1000.0])
def test_equals_torch(max_norm: float) -> None:
    network, twin = make_network(), make_network()
    for n in (network, twin):
        set_gradients(n, 0)
    ours = clip_gradients(network.parameters(), max_norm)
    theirs = nn.utils.clip_grad_norm_(twin.parameters(), max_norm, foreach=False)
    torch.testing.assert_close(ours, theirs)
    for p, q in zip(network.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)


def test_non_finite_norm_is_reported() -> None:
    assert math.isnan(clip_gradients(vectors([float("nan")], [1.0]), 1.0).item())


def test_no_gradient_at_all() -> None:
    assert clip_gradients(vectors(None), 1.0).item() == 0.0


def test_few_operations_and_no_reads() -> None:
    network = make_network()
    set_gradients(network, 0)
    with Recorder() as recorder:
        clip_gradients(network.parameters(), 1.0)
    assert recorder.counts.total() <= 9, recorder.counts
    assert not READS & set(recorder.counts)
