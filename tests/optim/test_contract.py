"""What every optimizer promises."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn

from lucid_yolo.config.schema import AdamWConfig, MuSGDConfig, OptimizerConfig, SGDConfig
from lucid_yolo.nn.model import Detector, Scale
from lucid_yolo.optim.adamw import AdamW
from lucid_yolo.optim.build import build_optimizer
from lucid_yolo.optim.flat import FlatOptimizer
from lucid_yolo.optim.sgd import SGD
from tests.optim.helpers import READS, Recorder, bits, make_network, set_gradients

CONFIGS = [
    MuSGDConfig("musgd", lr=0.05, weight_decay=0.1),
    SGDConfig("sgd", lr=0.05, weight_decay=0.1),
    AdamWConfig("adamw", lr=0.01, weight_decay=0.1),
]
every_optimizer = pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)


def snapshot(network: nn.Module, optimizer: FlatOptimizer) -> list[torch.Tensor]:
    states = [value for p in network.parameters() for _, value in sorted(optimizer.state[p].items())]
    return [bits(t) for t in [*network.parameters(), *states]]


def run(network: nn.Module, optimizer: FlatOptimizer, seeds: range) -> None:
    for seed in seeds:
        set_gradients(network, seed)
        optimizer.step()


@every_optimizer
@pytest.mark.parametrize("value", [1.0, float("nan"), float("inf")])
def test_a_refused_update_changes_nothing(config: OptimizerConfig, value: float) -> None:
    network = make_network()
    with torch.no_grad():
        network[3].bias[0] = -0.0
    optimizer = build_optimizer(network, config)
    run(network, optimizer, range(2))
    with torch.no_grad():
        network[3].bias[1] = -0.0
    before = snapshot(network, optimizer)
    optimizer.update_allowed = torch.tensor(False)
    for p in network.parameters():
        p.grad.fill_(value)
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, snapshot(network, optimizer), strict=True))


@every_optimizer
def test_a_refused_first_update_changes_nothing(config: OptimizerConfig) -> None:
    network = make_network()
    before = [bits(p) for p in network.parameters()]
    optimizer = build_optimizer(network, config)
    optimizer.update_allowed = torch.tensor(False)
    run(network, optimizer, range(1))
    assert all(torch.equal(a, bits(p)) for a, p in zip(before, network.parameters(), strict=True))
    optimizer.update_allowed = None
    twin = make_network()
    other = build_optimizer(twin, config)
    run(network, optimizer, range(1, 3))
    run(twin, other, range(1, 3))
    assert all(torch.equal(p, q) for p, q in zip(network.parameters(), twin.parameters(), strict=True))


@every_optimizer
def test_an_allowed_update_is_an_update(config: OptimizerConfig) -> None:
    network, twin = make_network(), make_network()
    one, other = build_optimizer(network, config), build_optimizer(twin, config)
    one.update_allowed = torch.tensor(True)
    run(network, one, range(3))
    run(twin, other, range(3))
    assert all(torch.equal(p, q) for p, q in zip(network.parameters(), twin.parameters(), strict=True))


@every_optimizer
@pytest.mark.parametrize("allowed", [None, True, False])
def test_a_step_reads_nothing_back(config: OptimizerConfig, allowed: bool | None) -> None:
    network = Detector(Scale("tiny", 0.5, 0.0625, 1024), 3)
    optimizer = build_optimizer(network, config)
    optimizer.update_allowed = None if allowed is None else torch.tensor(allowed)
    set_gradients(network, 0)
    optimizer.step()
    optimizer.param_groups[0]["lr"] *= 0.5
    with Recorder() as recorder:
        optimizer.step()
    assert not READS & set(recorder.counts)


def test_operations_of_a_step() -> None:
    network = Detector(Scale("tiny", 0.5, 0.0625, 1024), 3)
    set_gradients(network, 0)
    for config, most in ((CONFIGS[1], 14), (CONFIGS[2], 40)):
        optimizer = build_optimizer(network, config)
        optimizer.update_allowed = torch.tensor(True)
        optimizer.step()
        with Recorder() as recorder:
            optimizer.step()
        assert recorder.counts.total() <= most, recorder.counts


@every_optimizer
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_saving_and_loading_changes_nothing(config: OptimizerConfig, memory_format: torch.memory_format) -> None:
    network = make_network().to(memory_format=memory_format)
    optimizer = build_optimizer(network, config)
    run(network, optimizer, range(2))
    file = io.BytesIO()
    torch.save({"network": network.state_dict(), "optimizer": optimizer.state_dict()}, file)
    saved_bytes = sum(t.numel() * t.element_size() for p in network.parameters() for t in optimizer.state[p].values())
    assert len(file.getvalue()) < 2 * saved_bytes + 200_000  # not one whole buffer a parameter
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    run(network, optimizer, range(2, 4))

    resumed = make_network(seed=1)  # another memory format than the one that saved
    resumed.load_state_dict(saved["network"])
    resumed.to(memory_format=memory_format)
    other = build_optimizer(resumed, config)
    run(resumed, other, range(7, 8))  # state of its own, to be forgotten
    resumed.load_state_dict(saved["network"])
    other.load_state_dict(saved["optimizer"])
    run(resumed, other, range(2, 4))
    for p, q in zip(network.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(p, q)
        for name in optimizer.state[p]:
            assert torch.equal(optimizer.state[p][name], other.state[q][name])


@every_optimizer
def test_state_is_laid_out_as_torch_does(config: OptimizerConfig) -> None:
    network, twin = make_network(), make_network()
    optimizer = build_optimizer(network, config)
    theirs = (
        torch.optim.AdamW(twin.parameters())
        if config.name == "adamw"
        else torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    )
    for n, o in ((network, optimizer), (twin, theirs)):
        set_gradients(n, 0)
        o.step()
    ours, reference = optimizer.state_dict(), theirs.state_dict()
    assert set(ours) == set(reference)
    assert ours["param_groups"][0]["params"] == reference["param_groups"][0]["params"]
    assert isinstance(ours["param_groups"][0]["lr"], float)
    for key, state in reference["state"].items():
        assert {n: t.shape for n, t in ours["state"][key].items()} == {n: t.shape for n, t in state.items()}
    pointer = {t.untyped_storage().data_ptr() for s in ours["state"].values() for t in s.values()}
    assert len(pointer) == sum(map(len, ours["state"].values()))  # copies: later steps leave them alone


@every_optimizer
def test_parameters_without_gradient_are_left_alone(config: OptimizerConfig) -> None:
    network, twin = make_network(), make_network()
    one, other = build_optimizer(network, config), build_optimizer(twin, config)
    run(network, one, range(2))
    run(twin, other, range(2))
    kept = {name: bits(p) for name, p in network.named_parameters()}
    states = {n: {k: bits(v) for k, v in one.state[p].items()} for n, p in network.named_parameters()}
    set_gradients(network, 2)
    network[0].weight.grad = network[1].bias.grad = None
    one.step()
    for name in ("0.weight", "1.bias"):
        p = network.get_parameter(name)
        assert torch.equal(bits(p), kept[name])
        assert {k: bits(v).tolist() for k, v in one.state[p].items()} == {
            k: v.tolist() for k, v in states[name].items()
        }
    assert not torch.equal(bits(network[3].weight), kept["3.weight"])
    # Released again it goes on from its own state: the twin saw the same gradients of this parameter.
    run(network, one, range(3, 4))
    run(twin, other, range(3, 4))
    torch.testing.assert_close(network[1].bias, twin[1].bias, rtol=1e-6, atol=1e-7)


@every_optimizer
def test_a_changed_memory_format_keeps_the_state(config: OptimizerConfig) -> None:
    network, twin = make_network(), make_network()
    one, other = build_optimizer(network, config), build_optimizer(twin, config)
    run(network, one, range(2))
    run(twin, other, range(2))
    network.to(memory_format=torch.channels_last)
    run(network, one, range(2, 4))
    run(twin, other, range(2, 4))
    for p, q in zip(network.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


@every_optimizer
def test_gradients_in_another_memory_format(config: OptimizerConfig) -> None:
    network, twin = make_network(), make_network()
    one, other = build_optimizer(network, config), build_optimizer(twin, config)
    for n in (network, twin):
        set_gradients(n, 0)
    for p in network.parameters():
        if p.ndim == 4:
            p.grad = p.grad.contiguous(memory_format=torch.channels_last)
    one.step()
    other.step()
    assert all(torch.equal(p, q) for p, q in zip(network.parameters(), twin.parameters(), strict=True))


@every_optimizer
def test_copies_are_independent(config: OptimizerConfig) -> None:
    network = make_network()
    optimizer = build_optimizer(network, config)
    run(network, optimizer, range(2))
    network2, optimizer2 = copy.deepcopy((network, optimizer))
    run(network, optimizer, range(2, 3))
    run(network2, optimizer2, range(2, 3))
    assert all(torch.equal(p, q) for p, q in zip(network.parameters(), network2.parameters(), strict=True))
    run(network2, optimizer2, range(3, 4))
    assert not torch.equal(network[0].weight, network2[0].weight)


@every_optimizer
def test_closure_and_groups(config: OptimizerConfig) -> None:
    network, twin = make_network(), make_network()
    one, other = build_optimizer(network, config), build_optimizer(twin, config)
    (group,) = one.param_groups
    last = group["params"].pop()
    one.add_param_group({"params": [last], "lr": group["lr"] * 0.5})

    def closure() -> float:
        assert torch.is_grad_enabled()
        set_gradients(network, 0)
        return 1.5

    assert one.step(closure) == 1.5
    set_gradients(twin, 0)
    other.step()
    start = make_network()
    pairs = list(zip(network.parameters(), twin.parameters(), start.parameters(), strict=True))
    for p, q, _ in pairs[:-1]:
        torch.testing.assert_close(p, q)
    p, q, before = pairs[-1]
    torch.testing.assert_close(p - before, (q - before) * 0.5)


@every_optimizer
def test_sparse_gradients_are_refused(config: OptimizerConfig) -> None:
    network = nn.Embedding(5, 3, sparse=True)
    network(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match="sparse gradient"):
        build_optimizer(network, config).step()


@every_optimizer
def test_parameters_with_gaps_are_refused(config: OptimizerConfig) -> None:
    network = nn.ParameterList([nn.Parameter(torch.zeros(4, 6)[:, :3])])
    network[0].grad = torch.zeros(4, 3)
    with pytest.raises(ValueError, match="gaps or overlaps"):
        build_optimizer(network, config).step()


@every_optimizer
@pytest.mark.parametrize("change", ["type", "place"])
def test_a_parameter_that_becomes_another_in_the_same_memory_is_laid_out_anew(
    config: OptimizerConfig, change: str
) -> None:
    memory = torch.zeros(256, dtype=torch.uint8)
    before = memory[:64].view(torch.float32).view(4, 4)
    after = {
        "type": memory[:128].view(torch.float64).view(4, 4),
        "place": memory[64:128].view(torch.float32).view(4, 4),
    }[change]
    network = nn.ParameterList([nn.Parameter(before)])
    optimizer = build_optimizer(network, config)
    for data in (before, after):
        network[0].grad = None
        network[0].data = data
        network[0].grad = torch.ones_like(data)
        optimizer.step()
    (flat,) = optimizer.layout or ()
    assert (flat.update.dtype, flat.update.numel()) == (after.dtype, after.numel() + 1)
    assert (after < 0).all()  # it moved, against its gradient


@every_optimizer
def test_a_parameter_that_loses_rows_is_refused(config: OptimizerConfig) -> None:
    network = nn.ParameterList([nn.Parameter(torch.zeros(4, 4))])
    optimizer = build_optimizer(network, config)
    network[0].grad = torch.ones(4, 4)
    optimizer.step()
    network[0].grad = None
    network[0].data = network[0].data[:3]  # the same address and strides
    network[0].grad = torch.ones(3, 4)
    with pytest.raises(ValueError, match=r"shape \(3, 4\) now, .* of shape \(4, 4\)"):
        optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sgd_equals_torch(dtype: torch.dtype) -> None:
    network, twin = make_network(dtype=dtype), make_network(dtype=dtype)
    ours = SGD(network.parameters(), lr=0.05, momentum=0.9, weight_decay=0.1)
    theirs = torch.optim.SGD(decay_groups(twin), lr=0.05, momentum=0.9, nesterov=True)
    compare(network, ours, twin, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_adamw_equals_torch(dtype: torch.dtype) -> None:
    network, twin = make_network(dtype=dtype), make_network(dtype=dtype)
    ours = AdamW(network.parameters(), lr=0.01, betas=(0.8, 0.9), eps=1e-8, weight_decay=0.1)
    theirs = torch.optim.AdamW(decay_groups(twin), lr=0.01, betas=(0.8, 0.9), eps=1e-8)
    compare(network, ours, twin, theirs)


def decay_groups(network: nn.Module) -> list[dict[str, object]]:
    return [
        {"params": [p for p in network.parameters() if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in network.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]


def compare(network: nn.Module, ours: FlatOptimizer, twin: nn.Module, theirs: torch.optim.Optimizer) -> None:
    tolerance = 2e-6 if next(network.parameters()).dtype == torch.float32 else 1e-12
    for i in range(6):
        for optimizer, n in ((ours, network), (theirs, twin)):
            set_gradients(n, i)
            for group in optimizer.param_groups:
                group["lr"] *= 0.8
            optimizer.step()
    for p, q in zip(network.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=tolerance, atol=tolerance)
        for name, value in theirs.state[q].items():
            torch.testing.assert_close(ours.state[p][name], value, rtol=tolerance, atol=tolerance, check_dtype=False)
