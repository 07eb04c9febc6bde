"""``kernels=fused`` on a CUDA device: autograd's numbers, the same bits in every run, few launches."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lucid_yolo.config.schema import OnUnmet
from lucid_yolo.engine.train import train
from lucid_yolo.nn import max_pool
from lucid_yolo.nn.blocks import BatchNorm2d, ConvUnit
from lucid_yolo.nn.norms import STOCK
from lucid_yolo.perf.capture.values import flatten
from lucid_yolo.perf.fused import FusedKernels
from lucid_yolo.perf.norms import why_stock
from tests.gpu.conftest import Compose
from tests.gpu.test_capture import assert_same_run
from tests.gpu.watch import ForbidSynchronisation
from tests.perf.kernels import pool_cases
from tests.perf.objectives import make_batch, make_objective

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda", 0)
# Blocks of 16, 32 and 64 channels, whole and with idle ones; one program and more than the device runs at a time.
SHAPES = [(4, 16, 160, 160), (16, 32, 160, 160), (4, 256, 20, 20), (4, 21, 80, 80), (2, 85, 20, 20), (1, 3, 1, 2)]


@pytest.fixture(autouse=True)
def exact_products() -> Iterator[None]:
    """TF32 would hide what the kernels do to a network."""
    precision, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = convolutions


def draw(shape: tuple[int, ...], dtype: torch.dtype, *, mean: float = 0.0) -> tuple[Tensor, Tensor, BatchNorm2d]:
    """A map, a gradient of it, and a normalisation with other numbers than at its start."""
    generator = torch.Generator(CUDA).manual_seed(0)
    x, gradient = (torch.randn(shape, generator=generator, device=CUDA) for _ in range(2))
    norm = BatchNorm2d(shape[1]).to(CUDA)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 1.5, generator=generator)
        norm.bias.normal_(generator=generator)
        norm.running_mean.normal_(generator=generator)
    order = torch.channels_last
    return (x + mean).to(dtype, memory_format=order), gradient.to(dtype, memory_format=order), norm


def compute(norms: Any, x: Tensor, gradient: Tensor, norm: BatchNorm2d, *, silu: bool) -> dict[str, Tensor]:
    x, norm = x.detach().clone(memory_format=torch.preserve_format).requires_grad_(), copy.deepcopy(norm)
    y = (norms.normalise_and_activate if silu else norms.normalise)(x, norm)
    y.backward(gradient)
    found = {"y": y.detach(), "x": x.grad, "weight": norm.weight.grad, "bias": norm.bias.grad}
    return {**found, "running_mean": norm.running_mean, "running_var": norm.running_var}


def fused(*arguments: Any, silu: bool = True) -> dict[str, Tensor]:
    norms = FusedKernels(CUDA, OnUnmet.RAISE).norms
    found = compute(norms, *arguments, silu=silu)
    assert norms.outcome() == {"calls": 1, "stock_calls": 0}
    return found


def exact(x: Tensor, gradient: Tensor, norm: BatchNorm2d, *, silu: bool = True) -> dict[str, Tensor]:
    """In float64, which torch's own kernels compute as well."""
    norm = copy.deepcopy(norm).double()
    x = x.detach().double().requires_grad_()
    y = F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, True, 0.1, norm.eps)
    y = F.silu(y) if silu else y
    y.backward(gradient.double())
    found = {"y": y.detach(), "x": x.grad, "weight": norm.weight.grad, "bias": norm.bias.grad}
    return {**found, "running_mean": norm.running_mean, "running_var": norm.running_var}


def off(found: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """Largest difference of each result, by its largest value."""
    return {
        name: float((value.double() - expected[name]).abs().max() / expected[name].abs().max())
        for name, value in found.items()
    }


@pytest.mark.parametrize("silu", [True, False])
@pytest.mark.parametrize("shape", SHAPES[:5])
def test_float32_is_as_exact_as_float32_can_be(shape: tuple[int, ...], silu: bool) -> None:
    inputs = draw(shape, torch.float32)
    found, expected = fused(*inputs, silu=silu), exact(*inputs, silu=silu)
    assert found["x"].is_contiguous(memory_format=torch.channels_last)
    # Sums have another order than torch's, and exp and the quotient are the device's quick ones, good to 2 ulp: a few
    # times 2**-24 of the largest value.
    assert max(off(found, expected).values()) < 1e-5, off(found, expected)


@pytest.mark.parametrize(("dtype", "step"), [(torch.bfloat16, 2**-8), (torch.float16, 2**-11)])
@pytest.mark.parametrize("shape", SHAPES[:5])
def test_half_precision_is_rounded_once(shape: tuple[int, ...], dtype: torch.dtype, step: float) -> None:
    inputs = draw(shape, dtype)
    found, expected = fused(*inputs), exact(*inputs)
    assert found["y"].dtype == found["x"].dtype == dtype
    for name in ("y", "x"):  # half of the distance to the next number
        torch.testing.assert_close(found[name].double(), expected[name], rtol=1.02 * step, atol=1e-4)
    sums = {name: value for name, value in off(found, expected).items() if name not in ("y", "x")}
    assert max(sums.values()) < 1e-5, sums
    stock = compute(STOCK, *inputs, silu=True)  # rounds before SiLU, too
    ours, torchs = ((result["y"].double() - expected["y"]).square().mean() for result in (found, stock))
    assert float(ours) < float(torchs)


def test_a_large_mean_does_not_cancel() -> None:
    x, gradient, norm = draw((4, 32, 80, 80), torch.float32, mean=1000.0)
    x[0, :, 0, 0] = 0.0  # the first row of all lies a thousand deviations away
    found, expected = fused(x, gradient, norm), exact(x, gradient, norm)
    assert off(found, expected)["running_var"] < 1e-4
    assert off(found, expected)["y"] < 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_two_runs_give_the_same_bits(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    inputs = draw(shape, dtype)
    first = fused(*inputs)
    for _ in range(3):
        again = fused(*inputs)
        assert all(torch.equal(value, again[name]) for name, value in first.items())


def test_the_memory_order_of_a_gradient_changes_no_bit() -> None:
    x, gradient, norm = draw((4, 64, 20, 20), torch.bfloat16)
    expected = fused(x, gradient, norm)["x"]
    shifted = torch.empty(gradient.numel() + 1, dtype=gradient.dtype, device=CUDA)[1:]
    shifted = shifted.as_strided(gradient.shape, gradient.stride()).copy_(gradient)  # begins at an odd address
    for other in (gradient.contiguous(), shifted):
        assert torch.equal(fused(x, other, norm)["x"], expected)


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_properties(0).total_memory < 40 * 2**30, reason="needs 40 GiB"
)
def test_a_map_of_more_than_two_to_the_31_elements() -> None:
    image, gradient, norm = draw((1, 256, 328, 328), torch.bfloat16)
    count = 80  # 2.2e9 elements
    images, gradients = (
        t.expand(count, -1, -1, -1).contiguous(memory_format=torch.channels_last) for t in (image, gradient)
    )
    found, one = fused(images, gradients, norm), fused(image, gradient, norm)
    for name in ("y", "x"):  # all images are the same, and so are their statistics
        assert torch.equal(found[name][0], found[name][-1])
        torch.testing.assert_close(found[name][-1], one[name][0], rtol=2**-7, atol=1e-3)


def test_a_unit_launches_two_kernels_forward_and_two_backward() -> None:
    x, gradient, norm = draw((4, 64, 80, 80), torch.bfloat16)
    norms = FusedKernels(CUDA, OnUnmet.RAISE).norms
    x.requires_grad_()

    def both() -> None:
        y = norms.normalise_and_activate(x, norm)
        torch.autograd.grad(y, (x, norm.weight, norm.bias), gradient)

    both()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        both()
        torch.cuda.synchronize()
    launched = [event.name for event in profile.events() if event.device_type.name == "CUDA"]
    assert len(launched) == 4, launched


def test_nothing_waits_for_the_device() -> None:
    inputs = draw((4, 64, 80, 80), torch.bfloat16)
    fused(*inputs)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        fused(*inputs)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def pool(x: Tensor, window: int) -> Tensor:
    pools = FusedKernels(CUDA, OnUnmet.RAISE).pools
    y = pools.pool(x, window)
    assert pools.outcome() == {"calls": 1, "stock_calls": 0}
    return y


POOLED = [(4, 128, 20, 20), (64, 128, 20, 20), (2, 42, 40, 40), *pool_cases.SMALL]


@pytest.mark.parametrize("dtype", pool_cases.DTYPES)
@pytest.mark.parametrize("shape", POOLED)
def test_pools_have_the_bits_of_torchs(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    for levels in (3, 1000):
        inputs = pool_cases.draw(shape, dtype, levels=levels, device="cuda")
        pool_cases.assert_as_torch(pool, *inputs)
        found, stock = (pool_cases.compute(one, *inputs) for one in (pool, max_pool.STOCK.pool))
        assert all(torch.equal(a, b) for a, b in zip(found, stock, strict=True))


@pytest.mark.parametrize("dtype", pool_cases.DTYPES)
def test_pools_of_special_numbers_and_of_some_channels(dtype: torch.dtype) -> None:
    pool_cases.assert_as_torch(pool, *pool_cases.special(dtype, "cuda"))
    for begin, own, channels in pool_cases.SLICES:
        inputs = pool_cases.draw((3, own, 20, 20), dtype, levels=9, device="cuda")
        pool_cases.assert_as_torch(pool, *(pool_cases.some_channels(t, begin, channels) for t in inputs))


@pytest.mark.parametrize("shape", POOLED)
def test_gradients_of_a_pool_are_rounded_once_and_repeat(shape: tuple[int, ...]) -> None:
    for dtype, step in ((torch.float32, 0), (torch.bfloat16, 2**-8), (torch.float16, 2**-11)):
        x, _ = pool_cases.draw(shape, dtype, levels=4, device="cuda")
        gradient = torch.randn(shape, device=CUDA).to(dtype, memory_format=torch.channels_last)
        found = pool_cases.compute(pool, x, gradient)[1]
        exact = pool_cases.compute(pool_cases.by_torch, x.cpu().double(), gradient.cpu().double())[1]
        # 24 sums in float32 of numbers near 5, then half of the distance to the next number.
        torch.testing.assert_close(found.cpu().double(), exact, rtol=1.02 * step, atol=2e-5)
        again = [pool_cases.compute(pool, x, gradient)[1] for _ in range(3)]
        again.append(
            pool_cases.compute(pool, *(pool_cases.some_channels(t, 3, shape[1] + 7) for t in (x, gradient)))[1]
        )
        assert all(torch.equal(found, other) for other in again)


def test_pools_of_a_pyramid_launch_one_kernel_each_way_and_copy_nothing() -> None:
    x = draw((4, 128, 20, 20), torch.bfloat16)[0].requires_grad_()
    gradient = draw((4, 512, 20, 20), torch.bfloat16)[1]
    pools = FusedKernels(CUDA, OnUnmet.RAISE).pools

    def both() -> None:
        levels = [x]
        for _ in range(3):
            levels.append(pools.pool(levels[-1], 5))
        torch.autograd.grad(levels, x, list(gradient.chunk(4, dim=1)))

    both()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        torch.cuda.set_sync_debug_mode("error")
        both()
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
    launched = Counter(event.name for event in profile.events() if event.device_type.name == "CUDA")
    assert launched["_pool_kernel"] == launched["_gather_kernel"] == 3
    assert launched.total() == 9, launched  # and three sums of what the levels get from two sides


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_properties(0).total_memory < 40 * 2**30, reason="needs 40 GiB"
)
def test_a_pool_of_more_than_two_to_the_31_elements() -> None:
    image, gradient = pool_cases.draw((1, 256, 328, 328), torch.bfloat16, levels=9, device="cuda")
    images, gradients = (
        t.expand(80, -1, -1, -1).contiguous(memory_format=torch.channels_last) for t in (image, gradient)
    )
    found, one = pool_cases.compute(pool, images, gradients), pool_cases.compute(pool, image, gradient)
    for many, single in zip(found, one, strict=True):
        assert torch.equal(many[0], single[0])
        assert torch.equal(many[-1], single[0])


def test_every_map_of_a_convolution_is_fused() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for groups in (1, 32):
            unit = ConvUnit(32, 32, 3, groups=groups).to(CUDA, memory_format=torch.channels_last)
            x = torch.rand(2, 64, 20, 20, device=CUDA).to(memory_format=torch.channels_last)[:, 32:]  # as of a chunk
            with torch.autocast("cuda", dtype) if dtype != torch.float32 else nullcontext():
                assert why_stock(unit.conv(x), unit.norm, CUDA) == ""


def assert_all_fused(outcome: Mapping[str, Any]) -> None:
    for part in ("norm", "pool"):
        assert outcome[f"{part}_calls"] > 0, outcome
        assert outcome[f"{part}_stock_calls"] == 0, outcome


def differentiate(network: torch.nn.Module, images: Tensor, *, fuse: bool, half: bool) -> tuple[Tensor, Tensor]:
    """Gradients of a smooth function of all predictions, and running statistics; a loss would pick other candidates."""
    twin, kernels = copy.deepcopy(network).train(), FusedKernels(CUDA, OnUnmet.RAISE)
    if fuse:
        kernels.provide(twin)
    with torch.autocast("cuda", torch.bfloat16) if half else nullcontext():
        predictions, _ = flatten(twin(images))
    torch.stack([p.float().square().mean() for p in predictions]).sum().backward()
    if fuse:
        assert_all_fused(kernels.outcome())
    statistics = [buffer.flatten() for name, buffer in twin.named_buffers() if "running" in name]
    return torch.cat([p.grad.flatten() for p in twin.parameters()]), torch.cat(statistics)


def test_a_network_computes_what_it_does_with_torchs() -> None:
    network, _ = make_objective(160, device="cuda")
    images, _ = make_batch(160, batch=4, objects=5, rows=16, device="cuda")
    expected = differentiate(network, images, fuse=False, half=False)

    def distances(*, fuse: bool, half: bool) -> list[float]:
        found = differentiate(network, images, fuse=fuse, half=half)
        return [float((one - other).norm() / other.norm()) for one, other in zip(found, expected, strict=True)]

    # Sums in another order: some 1e-7 a layer, which grows on the way back through all of them.
    assert max(distances(fuse=True, half=False)) < 1e-3
    # In bfloat16 gradients of torch's are half off already; those that are rounded less often are not further away.
    for ours, torchs in zip(distances(fuse=True, half=True), distances(fuse=False, half=True), strict=True):
        assert ours < 1.25 * torchs


ONE_EPOCH = ("trainer.max_epochs=1", "kernels=fused", "on_unmet=raise")  # 10 steps


def row(result: Any, key: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((result.run_dir / "summary.json").read_text())["plan"][key]
    return found


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("task", ["detect", "segment", "keypoints", "obb"])
def test_a_recorded_run_equals_the_fused_eager_one_bit_for_bit(small: Compose, task: str, precision: str) -> None:
    settings = (f"task={task}", f"precision={precision}", *ONE_EPOCH)
    eager = train(small(*settings, run="eager"))
    recorded = train(small(*settings, "capture=step", run="recorded"))
    assert_same_run(recorded, eager)
    assert row(recorded, "capture.step")["outcome"]["replays"] == 10
    for result in (eager, recorded):
        found = row(result, "kernels")
        assert found["active"] == "fused"
        assert_all_fused(found["outcome"])


@pytest.mark.parametrize(
    "settings", ["capture=network", "capture=step capture.step.streams=12", "capture=network+loss"]
)
def test_it_goes_with_other_recordings(small: Compose, settings: str) -> None:
    eager = train(small(*ONE_EPOCH, run="eager"))
    recorded = train(small(*ONE_EPOCH, *settings.split(), run="recorded"))
    assert_same_run(recorded, eager)


def test_it_goes_with_a_loss_scaler(small: Compose) -> None:
    settings = ("precision=16-mixed", *ONE_EPOCH)
    eager = train(small(*settings, run="eager"))
    recorded = train(small(*settings, "capture=network", run="recorded"))
    assert_same_run(recorded, eager)
    assert_all_fused(row(eager, "kernels")["outcome"])


def test_a_fused_step_never_waits_for_the_device(small: Compose) -> None:
    watch = ForbidSynchronisation()
    try:
        train(small("kernels=fused", "on_unmet=raise"), callbacks=[watch])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert watch.steps == 28
