"""Depthwise convolutions by our kernels: compiled, and in whole runs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch

from lucid_yolo.config.schema import OnUnmet
from lucid_yolo.engine.train import train
from lucid_yolo.nn.depthwise import DepthwiseConv2d, set_filters
from lucid_yolo.perf.depthwise import TritonFilters
from tests.gpu.conftest import Compose
from tests.gpu.test_capture import assert_same_run
from tests.perf.kernels.depthwise_cases import SMALL, bound, errors

pytestmark = pytest.mark.gpu

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
OF_NANO = tuple(((4, channels, side, side), dtype) for channels, side in ((64, 80), (85, 20)) for dtype in DTYPES)


@pytest.fixture
def strict() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.cuda.set_sync_debug_mode("default")
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("case", [*SMALL, *OF_NANO], ids=str)
def test_the_kernels_are_the_definition(case: tuple[tuple[int, int, int, int], torch.dtype]) -> None:
    from lucid_yolo.perf.kernels.depthwise import depthwise

    assert max(errors(depthwise, case, "cuda")) < bound(case[1])


def test_a_layer_never_waits_repeats_its_bits_and_leaves_cudnn_alone(strict: None) -> None:
    layer = DepthwiseConv2d(42, 3).cuda()
    x = torch.randn(4, 42, 40, 40, device="cuda").to(memory_format=torch.channels_last)
    set_filters(layer, TritonFilters(OnUnmet.RAISE))

    def step() -> list[torch.Tensor]:
        leaf = x.detach().requires_grad_()
        with torch.autocast("cuda", torch.bfloat16):
            y = layer(leaf)
        return [y, *torch.autograd.grad(y.float().square().sum(), (leaf, layer.weight))]

    first = step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        torch.cuda.set_sync_debug_mode("error")
        second = step()
        torch.cuda.set_sync_debug_mode("default")
    assert first[0].dtype == torch.bfloat16
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    names = {event.name for event in profile.events()}
    assert {"_filter_kernel", "_gradient_kernel", "_sum_kernel"} <= names
    assert not any("cudnn" in name or "conv2d" in name for name in names)


def test_a_run_takes_them_by_itself_and_says_so(small: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    from lucid_yolo.perf.kernels import depthwise

    calls, genuine = [], depthwise.depthwise
    monkeypatch.setattr(depthwise, "depthwise", lambda x, weight: (calls.append(x.dtype), genuine(x, weight))[1])
    result = train(small("trainer.max_epochs=1", "precision=bf16-mixed"))
    assert calls.count(torch.bfloat16) > 10 * 13  # ten steps of thirteen layers, and validation
    row = json.loads((result.run_dir / "summary.json").read_text())["plan"]["depthwise"]
    assert (row["requested"], row["active"]) == ("auto", "triton")
    assert row["outcome"].keys() == {"build_seconds"}


def test_recorded_with_the_whole_step_they_give_the_same_bits(small: Compose) -> None:
    settings = ("precision=bf16-mixed", "depthwise=triton", "on_unmet=raise")
    assert_same_run(train(small(*settings, "capture=step", run="recorded")), train(small(*settings, run="eager")))
