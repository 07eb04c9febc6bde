"""Compares the kernels of normalisation in Triton's interpreter with autograd in float64; prints what agrees.

A process of its own, as `tests.perf.kernels.interpreter` says.
"""

from __future__ import annotations

import tests.perf.kernels.interpreter  # noqa: F401 # isort: skip - before the kernels

import copy
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lucid_yolo.config.schema import OnUnmet
from lucid_yolo.nn.blocks import BatchNorm2d, C3k2, ConvUnit, PSABlock
from lucid_yolo.nn.norms import set_norms
from lucid_yolo.perf.fused import FusedKernels
from lucid_yolo.perf.kernels import norm as kernels
from lucid_yolo.perf.kernels.norm_function import KernelNorms

NORMS = KernelNorms()
EXACT = {"rtol": 2e-5, "atol": 2e-5}  # float32 against float64: a few roundings, sums of some thousand numbers of 1


@dataclass
class Found:
    """What a normalisation computes of a map and a gradient."""

    y: Tensor
    x_gradient: Tensor
    weight_gradient: Tensor
    bias_gradient: Tensor
    running_mean: Tensor
    running_var: Tensor

    def double(self) -> Found:
        return Found(**{name: value.double() for name, value in vars(self).items()})


def draw(shape: tuple[int, ...], dtype: torch.dtype, *, mean: float = 0.0, std: float = 1.0, seed: int = 0):
    """A map, a gradient of the same type, and a normalisation with other numbers than at its start."""
    generator = torch.Generator().manual_seed(seed)
    x = (torch.randn(shape, generator=generator) * std + mean).to(dtype)
    gradient = torch.randn(shape, generator=generator).to(dtype)
    norm = BatchNorm2d(shape[1])
    with torch.no_grad():
        norm.weight.copy_(0.5 + torch.rand(shape[1], generator=generator))
        norm.bias.copy_(torch.randn(shape[1], generator=generator))
        norm.running_mean.copy_(torch.randn(shape[1], generator=generator))
        norm.running_var.copy_(0.5 + torch.rand(shape[1], generator=generator))
    return x, gradient, norm


def fused(x: Tensor, gradient: Tensor, norm: nn.Module, *, silu: bool) -> Found:
    x, norm = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_(), copy.deepcopy(norm)
    y = (NORMS.normalise_and_activate if silu else NORMS.normalise)(x, norm)
    y.backward(gradient)
    assert y.dtype == x.dtype
    assert norm.weight.grad.dtype == torch.float32
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert x.grad.is_contiguous(memory_format=torch.channels_last)
    return Found(y.detach(), x.grad, norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var)


def exact(x: Tensor, gradient: Tensor, norm: nn.Module, *, silu: bool) -> Found:
    x, norm = x.detach().double().requires_grad_(), copy.deepcopy(norm).double()
    y = F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, True, 0.1, 1e-5)
    y = F.silu(y) if silu else y
    y.backward(gradient.double())
    return Found(y.detach(), x.grad, norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var)


def assert_close(
    found: Found, expected: Found, *, map_rtol: float = 0.0, map_atol: float = 0.0, **other: float
) -> None:
    """Compare, with a wider tolerance for what is rounded to half precision."""
    for name, value in vars(found.double()).items():
        of_map = name in ("y", "x_gradient") and map_rtol > 0
        tolerance = {"rtol": map_rtol, "atol": map_atol} if of_map else (other or EXACT)
        torch.testing.assert_close(value, getattr(expected, name), **tolerance, msg=lambda m, name=name: f"{name}: {m}")


def shapes() -> None:
    """Odd and even channels, one or several blocks of them, one row and several splits, any number of rows."""
    for shape in ((2, 21, 9, 7), (1, 42, 5, 5), (3, 85, 8, 9), (2, 16, 40, 13), (2, 128, 6, 6), (1, 1, 3, 1)):
        for silu in (True, False):
            inputs = draw(shape, torch.float32)
            assert_close(fused(*inputs, silu=silu), exact(*inputs, silu=silu))


def many() -> None:
    """More splits than a program combines at a time."""
    usual, kernels.TILE = kernels.TILE, 256  # few rows a tile: 4 of 64 channels
    x, gradient, norm = draw((2, 64, 8, 10), torch.float32)
    splits = kernels._tiling(x, kernels.FORWARD)[2].splits
    assert_close(fused(x, gradient, norm, silu=True), exact(x, gradient, norm, silu=True))
    kernels.TILE = usual
    print(f"{splits} splits, 4 at a time")


def large_mean() -> None:
    """A mean of a thousand deviations; one of the first rows lies far away from all others."""
    x, gradient, norm = draw((2, 8, 20, 20), torch.float32, mean=1000.0)
    x[0, :, 0, 0] = 0.0
    found, expected = fused(x, gradient, norm, silu=True), exact(x, gradient, norm, silu=True)
    # The mean is kept in float32: one part in 2**24 of it is 6e-5 deviations. A variance of E[x^2] - E[x]^2 would be
    # off by a hundredth.
    assert_close(found, expected, rtol=2e-3, atol=2e-4)
    torch.testing.assert_close(found.running_var.double(), expected.running_var, rtol=1e-5, atol=0)
    constant = torch.full((2, 8, 4, 4), 1000.1)
    assert bool(fused(constant, gradient[..., :4, :4], norm, silu=False).y.isfinite().all())


def half() -> None:
    """What is rounded is the result, once; sums stay float32."""
    # Half of the distance of neighbours; the interpreter cuts bfloat16 off where a device rounds.
    for dtype, step in ((torch.bfloat16, 2**-7), (torch.float16, 2**-11)):
        inputs = draw((2, 24, 12, 12), dtype)
        assert_close(fused(*inputs, silu=True), exact(*inputs, silu=True), map_rtol=1.01 * step, map_atol=1e-5)


def orders() -> None:
    """A gradient in another memory order, or expanded from one number."""
    x, gradient, norm = draw((2, 21, 6, 5), torch.float32)
    for other in (
        gradient.contiguous(),
        gradient.transpose(2, 3).contiguous().transpose(2, 3),
        torch.ones(1).expand(x.shape),
    ):
        assert_close(fused(x, other, norm, silu=True), exact(x, other, norm, silu=True))
    same = [
        fused(x, g, norm, silu=True).x_gradient
        for g in (gradient, gradient.contiguous(memory_format=torch.channels_last))
    ]
    assert torch.equal(*same)


def parts() -> None:
    """The gradient of a part of a concatenated map is read in place, or copied where its rows are not aligned."""
    x, _, norm = draw((2, 16, 6, 5), torch.float32)
    for width, start in ((48, 16), (48, 32), (40, 16), (48, 3)):
        whole = draw((2, width, 6, 5), torch.float32, seed=width)[0].contiguous(memory_format=torch.channels_last)
        part = whole[:, start : start + 16]
        read, pitch = kernels._as_rows(part)
        assert (read is part, pitch) == ((True, 48) if (width, start % 16) == (48, 0) else (False, 16))
        found = fused(x, part, norm, silu=True)
        copied = fused(x, part.contiguous(memory_format=torch.channels_last), norm, silu=True)
        assert all(torch.equal(value, getattr(copied, name)) for name, value in vars(found).items())
        assert_close(found, exact(x, part, norm, silu=True))
    single = torch.ones(1).expand(2, 16, 6, 5)
    assert kernels._as_rows(single)[0] is not single


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 70), st.integers(1, 9), st.integers(2, 9)),
    mean=st.floats(-20, 20, width=32),
    std=st.floats(0.25, 8, width=32),
    silu=st.booleans(),
    seed=st.integers(0, 2**20),
)
def examples(shape: tuple[int, ...], mean: float, std: float, silu: bool, seed: int) -> None:
    inputs = draw(shape, torch.float32, mean=mean, std=std, seed=seed)
    found, expected = fused(*inputs, silu=silu), exact(*inputs, silu=silu)
    # Of two rows close together little is left after the mean is taken off; the smallest variance says how little.
    least = float(inputs[0].double().var(dim=(0, 2, 3)).min()) ** 0.5
    wider = 1 + max(abs(mean), std) / max(least, 1e-3)
    assert_close(found, expected, rtol=1e-4 * wider, atol=1e-5 * wider**2)


def blocks() -> None:
    """Whole blocks with the kernels plugged in: outputs and gradients of torch's, under autocast as well."""
    torch.manual_seed(0)
    # As in a training run: a block of units, one with an attention, and a unit of stride 2.
    network = nn.Sequential(
        ConvUnit(3, 16, 3, stride=2), C3k2(16, 24, 1, lambda c: ConvUnit(c, c, 3)), PSABlock(24)
    ).to(memory_format=torch.channels_last)
    images = torch.rand(2, 3, 24, 24).contiguous(memory_format=torch.channels_last)
    for autocast in (False, True):
        found = []
        for plugged in (True, False):
            twin = copy.deepcopy(network).train()
            norms = FusedKernels(torch.device("cpu"), OnUnmet.RAISE).norms
            if plugged:
                set_norms(twin, norms)
            with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
                y = twin(images)
            y.square().mean().backward()
            assert y.dtype == (torch.bfloat16 if autocast else torch.float32)
            gradients = torch.cat([p.grad.flatten() for p in twin.parameters()])
            found.append((y.detach().float(), gradients, torch.cat(list(twin.buffers()))))
            if plugged:
                assert norms.outcome() == {"calls": 9, "stock_calls": 0}, norms.outcome()
        # Torch rounds to bfloat16 before SiLU, the kernels only after it; both errors grow from layer to layer.
        off = [float((a - b).norm() / b.norm()) for a, b in zip(*found, strict=True)]
        assert max(off) < (0.05 if autocast else 1e-5), off


def modes() -> None:
    """The second derivative is refused, evaluation and what does not fit are torch's."""
    x, gradient, norm = draw((2, 8, 4, 4), torch.float32)
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    (first,) = torch.autograd.grad(NORMS.normalise(x, norm), x, gradient.requires_grad_(), create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
    norms = FusedKernels(torch.device("cpu"), OnUnmet.RAISE).norms
    before = norm.running_mean.clone()
    assert not norms.normalise(x, norm.eval()).equal(norms.normalise(x, norm.train()))
    assert not norm.running_mean.equal(before)
    assert norms.outcome() == {"calls": 1, "stock_calls": 1, "stock_reason": "no training"}
    again = [fused(x, gradient, norm, silu=True) for _ in range(2)]
    assert all(torch.equal(value, getattr(again[1], name)) for name, value in vars(again[0]).items())


CHECKS = (shapes, many, large_mean, half, orders, parts, examples, blocks, modes)


def main() -> None:
    np.seterr(over="ignore")  # exp of a large number is infinity, and its reciprocal 0, as on the device
    for check in CHECKS:
        check()
        print(f"{check.__name__}: ok")


if __name__ == "__main__":
    main()
