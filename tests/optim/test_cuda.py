from __future__ import annotations

import io

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from lucid_yolo.nn.model import Detector, Scale
from lucid_yolo.optim.adamw import AdamW
from lucid_yolo.optim.clip import clip_gradients
from lucid_yolo.optim.ema import Ema
from lucid_yolo.optim.flat import FlatOptimizer
from lucid_yolo.optim.musgd import MuSGD
from lucid_yolo.optim.sgd import SGD

pytestmark = pytest.mark.gpu

every_optimizer = pytest.mark.parametrize("kind", [MuSGD, SGD, AdamW])


def make_model(device: str = "cuda") -> nn.Module:
    torch.manual_seed(0)
    return Detector(Scale("n", 0.5, 0.25, 1024), 8).to(device).to(memory_format=torch.channels_last)


def backward(model: nn.Module, seed: int) -> None:
    """Gradients with the strides that convolutions give them."""
    device = next(model.parameters()).device
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(seed)).to(device)
    model.zero_grad()
    predictions = model(images.to(memory_format=torch.channels_last))
    sum(t.square().mean() for branch in predictions for t in branch).backward()


def launches(function: object) -> int:
    function()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        function()
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in recorded.events())


def test_launches_of_a_step() -> None:
    model = make_model()
    backward(model, 0)
    ema, flag = Ema(model, decay=0.99, ramp=10.0), torch.tensor(True, device="cuda")
    counts = {}
    for kind in (MuSGD, SGD, AdamW):
        optimizer = kind(model.parameters(), lr=1e-4)
        optimizer.update_allowed = flag
        counts[kind.__name__] = launches(optimizer.step)
    counts["ema"] = launches(lambda: ema.update(model, allowed=flag))
    counts["clip"] = launches(lambda: clip_gradients(model.parameters(), 10.0))
    print(counts)
    bounds = {"MuSGD": 230, "SGD": 30, "AdamW": 60, "ema": 42, "clip": 25}
    assert all(counts[name] <= bound for name, bound in bounds.items()), counts


@every_optimizer
@pytest.mark.parametrize("allowed", [None, True, False])
def test_a_step_never_synchronises(kind: type[FlatOptimizer], allowed: bool | None) -> None:
    model = make_model()
    backward(model, 0)
    optimizer = kind(model.parameters(), lr=1e-4)
    ema = Ema(model, decay=0.99, ramp=10.0)
    flag = None if allowed is None else torch.tensor(allowed, device="cuda")
    optimizer.update_allowed = flag
    optimizer.step()
    ema.update(model, allowed=flag)
    torch.cuda.set_sync_debug_mode("error")
    try:
        optimizer.param_groups[0]["lr"] = 2e-4
        clip_gradients(model.parameters(), 1.0)
        optimizer.step()
        ema.update(model, allowed=flag)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@every_optimizer
def test_a_replayed_step_equals_an_eager_one(kind: type[FlatOptimizer]) -> None:
    model, twin = make_model(), make_model()
    one, other = kind(model.parameters(), lr=1e-3), kind(twin.parameters(), lr=1e-3)
    for o, m in ((one, model), (other, twin)):
        o.update_allowed = torch.tensor(True, device="cuda")
        backward(m, 0)
        o.step()
    graph = torch.cuda.CUDAGraph()
    gradients = [p.grad for p in model.parameters()]
    (flat,) = one.flat_groups()
    with torch.no_grad(), torch.cuda.graph(graph):
        one.collect(flat)
        one.update(flat)
    for i in range(1, 4):
        backward(twin, i)
        for g, p in zip(gradients, twin.parameters(), strict=True):
            g.copy_(p.grad)
        for o in (one, other):
            o.param_groups[0]["lr"] = 1e-3 / i
            o.update_allowed.fill_(i != 2)
        one.flat_groups()
        graph.replay()
        other.step()
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), twin.parameters(), strict=True))


@every_optimizer
def test_state_moves_between_devices(kind: type[FlatOptimizer]) -> None:
    model = make_model()
    optimizer = kind(model.parameters(), lr=1e-3)
    backward(model, 0)
    optimizer.step()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True, map_location="cpu")
    twin = make_model("cpu")
    twin.load_state_dict(saved["model"])
    other = kind(twin.parameters(), lr=1e-3)
    other.load_state_dict(saved["optimizer"])
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        p.grad = torch.randn_like(p)
        q.grad = p.grad.cpu()
    optimizer.step()
    other.step()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p.cpu(), q, rtol=1e-4, atol=1e-5)
