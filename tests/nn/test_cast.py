"""Weights cast together against autocast, which casts each by itself."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lucid_yolo.nn.cast import CastOnce
from lucid_yolo.nn.model import Detector
from tests.losses.dispatch import Watch
from tests.nn.scales import SCALES, TINY

BF16 = torch.bfloat16
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    yield request.param
    torch.use_deterministic_algorithms(False)


def make_detector(device: str = "cpu", memory_format: torch.memory_format = torch.channels_last) -> Detector:
    torch.manual_seed(0)
    return Detector(SCALES["n"] if device == "cuda" else TINY, 8).to(device, memory_format=memory_format).train()


def draw_images(device: str = "cpu", *, seed: int = 1) -> Tensor:
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(seed))
    return images.to(device, memory_format=torch.channels_last)


def train_pass(call: Callable[[Tensor], Any], images: Tensor, dtype: torch.dtype = BF16) -> list[Tensor]:
    """Outputs of a training pass under autocast; gradients are added up in the parameters."""
    with torch.autocast(images.device.type, dtype):
        outputs = [t for branch in call(images) for t in branch]
        loss = sum(t.float().square().mean() for t in outputs)
    loss.backward()
    return [t.detach() for t in outputs]


def assert_same(mine: nn.Module, theirs: nn.Module) -> None:
    """The same bits and layouts in gradients, parameters and statistics."""
    pairs = zip(mine.named_parameters(), theirs.named_parameters(), strict=True)
    for (name, p), (_, q) in pairs:
        assert (p.grad is None) == (q.grad is None), name
        if p.grad is not None and q.grad is not None:
            assert p.grad.dtype == q.grad.dtype, name
            assert p.grad.stride() == q.grad.stride(), name
            assert torch.equal(p.grad, q.grad), name
    for key, value in theirs.state_dict().items():
        assert torch.equal(mine.state_dict()[key], value), key


@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_pass_equals_autocast_bit_for_bit(
    device: str, memory_format: torch.memory_format, dtype: torch.dtype
) -> None:
    plain, model = make_detector(device, memory_format), make_detector(device, memory_format)
    images = draw_images(device)
    theirs = train_pass(plain, images, dtype)
    mine = train_pass(CastOnce(model), images, dtype)
    for a, b in zip(mine, theirs, strict=True):
        assert a.dtype == b.dtype
        assert a.stride() == b.stride()
        assert torch.equal(a, b)
    assert_same(model, plain)


def test_passes_before_their_backward_passes_do_not_disturb_each_other() -> None:
    plain, model = make_detector(), make_detector()
    for call in (plain, CastOnce(model)):
        losses = []
        for seed in (1, 2):
            with torch.autocast("cpu", BF16):
                losses.append(sum(t.float().square().mean() for b in call(draw_images(seed=seed)) for t in b))
        for loss in losses:
            loss.backward()
    assert_same(model, plain)


def test_every_weight_is_cast_by_one_copy_and_its_gradient_by_another() -> None:
    plain, model = make_detector(), make_detector()
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    weights = sum(len(list(layer.parameters())) for layer in layers)
    counts = []
    for call in (plain, CastOnce(model)):
        with Watch() as watch:
            train_pass(call, draw_images())
        counts.append(watch.launched)
    assert counts[0]["_foreach_copy_"] == 0
    assert counts[1]["_foreach_copy_"] == 2
    assert counts[0]["_to_copy"] - counts[1]["_to_copy"] == 2 * weights
    for name in ("clone", "copy_", "add", "add_"):  # no gradient is copied or added on its way
        assert counts[0][name] == counts[1][name]


@pytest.mark.gpu
def test_a_pass_launches_two_kernels_a_weight_less() -> None:
    counts = []
    for wrap in (lambda model: model, CastOnce):
        call, images = wrap(make_detector("cuda")), draw_images("cuda")
        train_pass(call, images)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            train_pass(call, images)
            torch.cuda.synchronize()
        counts.append(sum(1 for event in profile.events() if event.device_type.name == "CUDA"))
    weights = sum(len(list(m.parameters())) for m in make_detector().modules() if isinstance(m, nn.Conv2d))
    assert counts[0] - counts[1] >= 2 * weights - 10  # a multi-tensor copy takes a few launches


def test_frozen_parameters_stay_without_gradient() -> None:
    plain, model = make_detector(), make_detector()
    for one in (plain, model):
        one.backbone.requires_grad_(requires_grad=False)
        one.head.one_to_one.cls.requires_grad_(requires_grad=False)
    theirs = train_pass(plain, draw_images())
    mine = train_pass(CastOnce(model), draw_images())
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    assert all(p.grad is None for p in model.backbone.parameters())
    assert all(p.grad is not None for p in model.neck.parameters())
    assert_same(model, plain)


class Seen(nn.Module):
    """One layer; notes what holds its weight during the forward pass."""

    def __init__(self, layer: nn.Module | None = None) -> None:
        super().__init__()
        self.layer = layer or nn.Conv2d(3, 4, 1)
        self.weights: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.weights.append(self.layer.weight)
        return self.layer(x)


@contextmanager
def passing(*, autocast: bool, gradients: bool) -> Iterator[None]:
    with torch.autocast("cpu", BF16, enabled=autocast), torch.set_grad_enabled(gradients):
        yield


@pytest.mark.parametrize(
    ("training", "gradients", "autocast", "dtype"),
    [
        (True, True, True, torch.bfloat16),
        (True, True, False, torch.float32),
        (True, False, True, torch.float32),
        (False, True, True, torch.float32),
        (False, False, False, torch.float32),
    ],
)
def test_steps_in_for_training_passes_under_autocast_only(
    training: bool, gradients: bool, autocast: bool, dtype: torch.dtype
) -> None:
    network = Seen().train(training)
    weight, bias = network.layer.weight, network.layer.bias
    with passing(autocast=autocast, gradients=gradients):
        found = CastOnce(network)(torch.rand(1, 3, 8, 8))
        expected = network(torch.rand(1, 3, 8, 8))
    assert network.weights[0].dtype == dtype
    assert (network.weights[0] is weight) == (dtype == torch.float32)
    assert found.requires_grad == expected.requires_grad
    assert network.layer.weight is weight
    assert network.layer.bias is bias
    assert network.weights[1] is weight


def test_a_frozen_weight_is_cast_without_a_gradient() -> None:
    network = Seen()
    network.layer.weight.requires_grad_(requires_grad=False)
    with torch.autocast("cpu", BF16):
        CastOnce(network)(torch.rand(1, 3, 8, 8)).sum().backward()
    assert network.weights[0].dtype == BF16
    assert not network.weights[0].requires_grad
    assert network.layer.weight.grad is None
    assert network.layer.bias.grad is not None


class Standardized(nn.Conv2d):
    """Computes with another weight than its own."""

    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(x, self.weight - self.weight.mean(), self.bias)


def with_own_forward() -> nn.Module:
    layer = nn.Conv2d(3, 4, 1)
    layer.forward = lambda x: layer._conv_forward(x, layer.weight - layer.weight.mean(), layer.bias)  # type: ignore[method-assign]
    return layer


@pytest.mark.parametrize("make", [lambda: Standardized(3, 4, 1), with_own_forward, lambda: nn.Conv2d(3, 4, 1).double()])
def test_other_layers_are_left_to_autocast(make: Callable[[], nn.Module]) -> None:
    network = Seen(make())
    x = torch.rand(1, 3, 8, 8, dtype=network.layer.weight.dtype)
    with torch.autocast("cpu", BF16):
        CastOnce(network)(x)
    assert network.weights[0] is network.layer.weight


def test_hooks_see_the_parameters() -> None:
    network = Seen()
    call = CastOnce(network)
    seen: list[Tensor] = []
    handles = [
        lambda: network.layer.register_forward_hook(lambda layer, *_: seen.append(layer.weight)),
        lambda: network.register_forward_pre_hook(lambda module, _: seen.append(module.layer.weight)),
        lambda: nn.modules.module.register_module_forward_hook(
            lambda module, *_: seen.append(module.weight) if isinstance(module, nn.Conv2d) else None
        ),
    ]
    for register in handles:
        handle = register()
        with torch.autocast("cpu", BF16):
            call(torch.rand(1, 3, 8, 8))
        handle.remove()
    assert [weight is network.layer.weight for weight in seen] == [True] * 3
    with torch.autocast("cpu", BF16):
        call(torch.rand(1, 3, 8, 8))
    assert network.weights[-1].dtype == BF16


def test_parameters_are_back_after_an_exception() -> None:
    network = Seen()
    names = dict(network.named_parameters())
    with torch.autocast("cpu", BF16), pytest.raises(RuntimeError, match="channels"):
        CastOnce(network)(torch.rand(1, 5, 8, 8))
    assert network.weights[0].dtype == BF16
    assert {name: id(p) for name, p in network.named_parameters()} == {name: id(p) for name, p in names.items()}


class Odd(nn.Module):
    """Two layers on one weight, a linear one whose weight lies transposed in a larger one, and a layer without use."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
        self.second.weight = self.first.weight
        self.linear = nn.Linear(3, 50)
        self.linear.weight = nn.Parameter(torch.randn(3, 100)[:, ::2].t())
        self.spare = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> tuple[tuple[Tensor]]:
        return ((self.linear(self.second(self.first(x)).flatten(2).transpose(1, 2)),),)


def test_shared_strided_and_unused_weights_equal_autocast() -> None:
    plain, model = Odd(), Odd()
    assert not model.linear.weight.is_contiguous()
    theirs, mine = train_pass(plain, draw_images()), train_pass(CastOnce(model), draw_images())
    assert torch.equal(mine[0], theirs[0])
    assert model.spare.weight.grad is None
    assert_same(model, plain)


def test_a_layer_that_came_later_is_left_to_autocast() -> None:
    network = Seen()
    call = CastOnce(network)
    network.layer = nn.Conv2d(3, 4, 1)
    with torch.autocast("cpu", BF16):
        call(torch.rand(1, 3, 8, 8)).sum().backward()
    assert network.weights[0] is network.layer.weight
    assert network.layer.weight.grad is not None


def test_a_copy_has_a_network_of_its_own() -> None:
    call = CastOnce(Seen())
    copied = copy.deepcopy(call)
    with torch.autocast("cpu", BF16):
        copied(torch.rand(1, 3, 8, 8)).sum().backward()
    assert copied.network.weights[0].dtype == BF16
    assert copied.network.layer.weight.grad is not None
    assert call.network.layer.weight.grad is None
    assert not call.network.weights
