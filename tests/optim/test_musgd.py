from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from lucid_yolo.nn.model import Detector, Scale
from lucid_yolo.optim import buckets
from lucid_yolo.optim.musgd import MuSGD
from tests.optim.helpers import Recorder, make_network, set_gradients
from tests.optim.test_newton_schulz import slow as slow_newton_schulz

SETTINGS = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1, "muon_weight": 0.7, "sgd_weight": 0.4}


class SlowMuSGD:
    """One parameter after the other, float64, from the formula."""

    def __init__(self, network: nn.Module) -> None:
        self.weights = [p.detach().double().numpy().copy() for p in network.parameters()]
        self.momenta = [np.zeros_like(w) for w in self.weights]

    def step(self, gradients: list[np.ndarray], *, lr: float, momentum: float, steps: int) -> None:
        for i, g in enumerate(gradients):
            self.momenta[i] = momentum * self.momenta[i] + g
            u = g + momentum * self.momenta[i]
            w = self.weights[i]
            if w.ndim >= 2:
                matrix = u.reshape(u.shape[0], -1)
                turned = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
                ns = slow_newton_schulz(turned, steps)
                ns = ns if matrix.shape[0] <= matrix.shape[1] else ns.T
                muon = SETTINGS["muon_weight"] * 0.2 * math.sqrt(max(matrix.shape)) * ns.reshape(w.shape)
                u = muon + SETTINGS["sgd_weight"] * u + SETTINGS["weight_decay"] * w
            self.weights[i] = w - lr * u


def gradients(network: nn.Module) -> list[np.ndarray]:
    return [p.grad.double().numpy().copy() for p in network.parameters()]


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("bucket_cost", [0.0, 1e12])
@pytest.mark.parametrize("steps", [1, 5])
def test_against_the_formula(
    memory_format: torch.memory_format, bucket_cost: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(buckets.BUCKET_COST, "cpu", bucket_cost)
    network = make_network().to(memory_format=memory_format)
    optimizer = MuSGD(network.parameters(), **SETTINGS, newton_schulz_steps=steps)
    slow = SlowMuSGD(network)
    for i in range(4):
        lr = 0.05 / (i + 1)
        momentum = 0.9 - 0.1 * i
        optimizer.param_groups[0].update(lr=lr, momentum=momentum)  # as a schedule does
        set_gradients(network, seed=i)
        slow.step(gradients(network), lr=lr, momentum=momentum, steps=steps)
        optimizer.step()
    for p, weight, momentum_buffer in zip(network.parameters(), slow.weights, slow.momenta, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), weight, rtol=1e-4, atol=2e-5)
        np.testing.assert_allclose(optimizer.state[p]["momentum_buffer"].numpy(), momentum_buffer, rtol=1e-4, atol=1e-5)


def test_without_the_orthogonalized_part_it_is_sgd() -> None:
    network = make_network()
    twin = make_network()
    ours = MuSGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=0.0, muon_weight=0.0, sgd_weight=1.0)
    theirs = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for i in range(3):
        for n in (network, twin):
            set_gradients(n, seed=i)
        with Recorder() as recorder:
            ours.step()
        theirs.step()
        assert recorder.counts["bmm"] == 0
    for p, q in zip(network.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_weights_may_change_between_steps() -> None:
    one, other = make_network(), make_network()
    a = MuSGD(one.parameters(), lr=0.1, weight_decay=0.0, muon_weight=0.5, sgd_weight=0.5)
    b = MuSGD(other.parameters(), lr=0.1, weight_decay=0.0, muon_weight=1.0, sgd_weight=0.0)
    for n in (one, other):
        set_gradients(n, seed=0)
    b.step()
    a.param_groups[0].update(muon_weight=0.5)
    a.step()
    a.param_groups[0].update(muon_weight=1.0, sgd_weight=0.0)
    before = one[0].weight.detach().clone(), other[0].weight.detach().clone()
    for n in (one, other):
        set_gradients(n, seed=1)
    a.step()
    b.step()
    torch.testing.assert_close(one[0].weight - before[0], other[0].weight - before[1])


def test_only_vectors() -> None:
    p = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = MuSGD([p], lr=0.5, momentum=0.9, weight_decay=0.1)
    p.grad = torch.tensor([1.0, -1.0])
    optimizer.step()
    torch.testing.assert_close(p.detach(), torch.tensor([1.0 - 0.5 * 1.9, 2.0 + 0.5 * 1.9]))  # g + 0.9 g, no decay


def test_low_precision_parameters_are_orthogonalized_in_float32() -> None:
    network, wide = make_network(dtype=torch.bfloat16), make_network(dtype=torch.bfloat16).float()
    for n in (network, wide):
        set_gradients(n, seed=0)
    for p, q in zip(network.parameters(), wide.parameters(), strict=True):
        q.grad.copy_(p.grad)
        MuSGD([p], lr=0.1).step()
        MuSGD([q], lr=0.1).step()
        assert p.dtype == torch.bfloat16
        torch.testing.assert_close(p.float(), q, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(("bucket_cost", "most_buckets", "most_operations"), [(1e7, 25, 1000), (4e9, 5, 240)])
def test_operations_of_a_step(
    bucket_cost: float, most_buckets: int, most_operations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The costs of a stack on a CPU and on a GPU; a launch is an operation that is no view."""
    monkeypatch.setitem(buckets.BUCKET_COST, "cpu", bucket_cost)
    network = Detector(Scale("n", 0.5, 0.25, 1024), 80)
    set_gradients(network, seed=0)
    optimizer = MuSGD(network.parameters(), lr=0.01)
    optimizer.step()
    (group,) = optimizer.flat_groups()
    assert len(group.buckets) <= most_buckets
    with Recorder() as recorder:
        optimizer.step()
    assert recorder.counts.total() <= most_operations, recorder.counts
