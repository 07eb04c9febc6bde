from __future__ import annotations

import copy
import io
import math

import numpy as np
import pytest
import torch
from torch import nn

from lucid_yolo.nn.model import Detector, Scale
from lucid_yolo.optim.ema import Ema
from tests.optim.helpers import READS, Recorder, bits, make_network


def change(network: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for value in network.state_dict().values():
        if value.is_floating_point():
            value.add_(torch.randn(value.shape, generator=generator))
        else:
            value.add_(1)


def test_against_a_loop() -> None:
    network = make_network()
    ema = Ema(network, decay=0.99, ramp=5.0)
    averages = {n: v.double().numpy().copy() for n, v in network.state_dict().items()}
    for t in range(1, 8):
        change(network, t)
        ema.update(network)
        decay = 0.99 * (1 - math.exp(-t / 5.0))
        for name, value in network.state_dict().items():
            averages[name] = decay * averages[name] + (1 - decay) * value.double().numpy()
    assert ema.updates.item() == 7
    for name, value in ema.module.state_dict().items():
        if value.is_floating_point():
            np.testing.assert_allclose(value.numpy(), averages[name], rtol=1e-5, atol=1e-6)
        else:
            assert value == 7  # counters are copied


def test_late_updates_have_the_weight_of_the_decay() -> None:
    network = nn.Linear(1, 1)
    ema = Ema(network, decay=0.9999, ramp=2000.0)
    ema.updates.fill_(10**6)
    for p in network.parameters():
        p.data.add_(1.0)
    before = ema.module.weight.item()
    ema.update(network)
    assert ema.module.weight.item() - before == pytest.approx(1e-4, rel=2e-3)


@pytest.mark.parametrize("value", [2.0, float("nan")])
def test_a_refused_update_changes_nothing(value: float) -> None:
    network = make_network()
    with torch.no_grad():
        network[3].bias.fill_(-0.0)
    ema = Ema(network, decay=0.9, ramp=2.0)
    change(network, 0)
    ema.update(network, allowed=torch.tensor(True))
    with torch.no_grad():
        ema.module[3].bias.fill_(-0.0)
    before = {name: bits(v) for name, v in ema.state_dict().items()}
    for v in network.state_dict().values():
        if v.is_floating_point():
            v.fill_(value)
        else:
            v.add_(1)
    ema.update(network, allowed=torch.tensor(False))
    assert all(torch.equal(bits(v), before[name]) for name, v in ema.state_dict().items())


def test_allowed_is_the_same_as_none() -> None:
    network = make_network()
    one, other = Ema(network, decay=0.9, ramp=2.0), Ema(network, decay=0.9, ramp=2.0)
    for seed in range(3):
        change(network, seed)
        one.update(network)
        other.update(network, allowed=torch.tensor(True))
    for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("allowed", [None, True])
def test_few_operations_and_no_reads(allowed: bool | None) -> None:
    network = Detector(Scale("tiny", 0.5, 0.0625, 1024), 3)
    ema = Ema(network, decay=0.9, ramp=2.0)
    flag = None if allowed is None else torch.tensor(allowed)
    ema.update(network, allowed=flag)
    with Recorder() as recorder:
        ema.update(network, allowed=flag)
    assert recorder.counts.total() <= 11, recorder.counts
    lists = {name: n for name, n in recorder.counts.items() if "foreach" in name}
    assert sum(lists.values()) == 1, recorder.counts  # each takes a launch for some sixty tensors
    assert not READS & set(recorder.counts)


def test_state_dict_and_resume() -> None:
    network = make_network()
    ema = Ema(network, decay=0.9, ramp=20.0)
    change(network, 0)
    ema.update(network)
    file = io.BytesIO()
    torch.save(ema.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert set(state) == {"updates", *(f"module.{name}" for name in network.state_dict())}
    resumed = Ema(make_network(seed=1), decay=0.9, ramp=20.0)
    resumed.update(network)
    resumed.load_state_dict(state)
    change(network, 1)
    ema.update(network)
    resumed.update(network)
    for a, b in zip(ema.state_dict().values(), resumed.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_average_stays_in_evaluation_mode_without_gradients() -> None:
    network = make_network()
    ema = Ema(network, decay=0.9, ramp=2.0)
    nn.ModuleList([network, ema]).train()
    assert network.training
    assert not any(module.training for module in ema.modules())
    assert not any(p.requires_grad for p in ema.parameters())
    assert all(p.requires_grad for p in network.parameters())


def test_moved_and_copied_averages_go_on() -> None:
    network = make_network()
    ema = Ema(network, decay=0.9, ramp=2.0)
    change(network, 0)
    ema.update(network)
    twin = copy.deepcopy(ema)
    network.to(memory_format=torch.channels_last)
    ema.to(memory_format=torch.channels_last)
    for module in (*network.modules(), *ema.modules()):  # what moving to another device does to buffers
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else buffer.clone()
    change(network, 1)
    ema.update(network)
    twin.update(network)
    for a, b in zip(ema.state_dict().values(), twin.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b)


def test_tensors_whose_memory_has_gaps_or_overlaps_are_averaged() -> None:
    network = nn.Linear(2, 2)
    network.register_buffer("gaps", torch.randn(4, 4)[:, ::2])
    network.register_buffer("overlap", torch.ones(1).expand(3))
    ema = Ema(network, decay=0.0, ramp=2.0)  # follows at once
    network.gaps, network.overlap = network.gaps + 1.0, torch.tensor([1.0, 2.0, 3.0])
    ema.update(network)
    for name, value in network.state_dict().items():
        torch.testing.assert_close(ema.module.state_dict()[name], value)


def test_shared_parameters_are_averaged_once() -> None:
    layer = nn.Linear(2, 2)
    network = nn.Sequential(layer, nn.Sequential(layer))
    ema = Ema(network, decay=0.9, ramp=2.0)
    start = layer.weight.detach().clone()
    layer.weight.data.add_(1.0)
    ema.update(network)
    weight = 1 - 0.9 * (1 - math.exp(-0.5))
    torch.testing.assert_close(ema.module[0].weight, start + weight)
