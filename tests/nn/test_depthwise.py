"""Depthwise convolutions against a sum written from the definition."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lucid_yolo.nn.depthwise import DepthwiseConv2d, _Native

LAST, FIRST = torch.channels_last, torch.contiguous_format


@pytest.fixture
def strict() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def by_definition(x: Tensor, weight: Tensor) -> Tensor:
    """Each output is the sum of the 3 x 3 positions around it, each with its weight; outside of the picture is 0."""
    height, width = x.shape[-2:]
    padded = F.pad(x, (1, 1, 1, 1))
    return sum(
        padded[..., i : i + height, j : j + width] * weight[:, 0, i, j].view(-1, 1, 1)
        for i in range(3)
        for j in range(3)
    )


def gradients(output: Tensor, x: Tensor, weight: Tensor, gradient: Tensor) -> list[Tensor]:
    return [output.detach(), *torch.autograd.grad(output, (x, weight), gradient)]


def draw(dtype: torch.dtype = torch.float64) -> tuple[DepthwiseConv2d, Tensor, Tensor]:
    torch.manual_seed(0)
    layer = DepthwiseConv2d(21, 3).to(dtype)
    return layer, torch.randn(2, 21, 6, 9, dtype=dtype), torch.randn(2, 21, 6, 9, dtype=dtype)


@pytest.mark.parametrize("memory_format", [FIRST, LAST])
def test_layer_and_function_are_the_definition(memory_format: torch.memory_format) -> None:
    layer, x, gradient = draw()
    x = x.contiguous(memory_format=memory_format).requires_grad_()
    expected = gradients(by_definition(x, layer.weight), x, layer.weight, gradient)
    for output in (layer(x), _Native.apply(x, layer.weight)):
        actual = gradients(output, x, layer.weight, gradient)
        for mine, theirs in zip(actual, expected, strict=True):
            torch.testing.assert_close(mine, theirs)
        assert actual[0].is_contiguous(memory_format=memory_format)
        assert actual[1].is_contiguous(memory_format=memory_format)


def test_what_needs_no_gradient_gets_none() -> None:
    layer, x, gradient = draw()
    output = _Native.apply(x, layer.weight)
    output.backward(gradient)
    assert x.grad is None
    assert layer.weight.grad is not None
    assert torch.backends.cudnn.enabled


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_cuda_it_is_the_definition_without_cudnn(dtype: torch.dtype, strict: None) -> None:
    layer, x, gradient = draw(torch.float32)
    layer, gradient = layer.cuda(), gradient.cuda().contiguous(memory_format=LAST)
    x = x.cuda().contiguous(memory_format=LAST).requires_grad_()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32):
            output = layer(x)
        actual = gradients(output, x, layer.weight, gradient.to(output.dtype))
    names = [event.name for event in profile.events()]
    assert sum("conv_depthwise2d" in name for name in names) == 3
    assert not any("cudnn" in name for name in names)
    assert output.dtype == dtype
    exact = [t.detach().double().cpu().requires_grad_() for t in (x, layer.weight)]
    expected = gradients(by_definition(*exact), *exact, gradient.double().cpu())
    for mine, theirs in zip(actual, expected, strict=True):
        error = (mine.double().cpu() - theirs).norm() / theirs.norm()
        assert error < (1e-6 if dtype == torch.float32 else 1e-2)
    assert all(t.is_contiguous(memory_format=LAST) for t in actual[:2])
