"""Compares the kernels of max pools in Triton's interpreter with torch in float64; prints what agrees.

A process of its own, as `tests.perf.kernels.interpreter` says.
"""

from __future__ import annotations

import tests.perf.kernels.interpreter  # noqa: F401 # isort: skip - before the kernels

import copy
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lucid_yolo.nn.blocks import SPPF
from lucid_yolo.nn.max_pool import set_pools
from lucid_yolo.perf.kernels import max_pool as kernels
from lucid_yolo.perf.kernels.max_pool import KernelPools, pool
from tests.perf.kernels.pool_cases import (
    DTYPES,
    SLICES,
    SMALL,
    WINDOW,
    assert_as_torch,
    by_torch,
    compute,
    draw,
    some_channels,
    special,
)

POOLS = KernelPools()


def shapes() -> None:
    """Whole tiles and idle ones, maps smaller than a window; windows with one largest value and with several."""
    for shape in SMALL:
        assert_as_torch(POOLS.pool, *draw(shape, torch.float32, levels=12))


def types() -> None:
    """Each type of maps."""
    for dtype in DTYPES:
        assert_as_torch(POOLS.pool, *draw(SMALL[0], dtype, levels=5))


def places() -> None:
    """Of equal values the first; and of those that do not occur, none."""
    for levels in (1, 3):
        x, _ = draw((2, 21, 8, 7), torch.float32, levels=levels)
        _, taken = pool(x, WINDOW)
        _, sources = torch.nn.functional.max_pool2d(x, WINDOW, 1, WINDOW // 2, return_indices=True)
        line, column = torch.arange(8).view(8, 1), torch.arange(7)
        down, right = sources // 7 - line + 2, sources % 7 - column + 2
        assert torch.equal(taken.long(), down * WINDOW + right)


def specials() -> None:
    """Numbers that are none, or have no end."""
    for dtype in DTYPES:
        assert_as_torch(POOLS.pool, *special(dtype))


def slices() -> None:
    """Maps and gradients that are some of the channels of others: what lies beside them is NaN."""
    for begin, own, channels in SLICES:
        x, gradient = draw((2, own, 6, 7), torch.float32, levels=4)
        inner = some_channels(gradient, begin, channels)
        assert_as_torch(POOLS.pool, some_channels(x, begin, channels), inner)
    assert_as_torch(POOLS.pool, x, inner)  # one of the two is enough
    assert_as_torch(POOLS.pool, some_channels(x, begin, channels), gradient)


def orders() -> None:
    """Maps and gradients in other memory orders are copied."""
    x, gradient = draw((2, 21, 6, 5), torch.float32, levels=9)
    assert_as_torch(POOLS.pool, x.contiguous(), gradient.contiguous())
    assert_as_torch(POOLS.pool, x.transpose(2, 3), gradient.transpose(2, 3))
    assert_as_torch(POOLS.pool, x, torch.ones(1).expand(x.shape))
    assert_as_torch(POOLS.pool, x.flip(0)[::2], gradient[::2])


def sums() -> None:
    """Sums are rounded once, however many outputs one position serves."""
    x, _ = draw((2, 16, 8, 8), torch.float32, levels=1)
    x[:, :, 4, 4] = 1.0  # the maximum of 25 windows
    gradient = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    for dtype in DTYPES:
        inputs = x.to(dtype), gradient.to(dtype)
        found = compute(POOLS.pool, *inputs)[1].double()
        expected = compute(by_torch, *(t.double() for t in inputs))[1]
        # Float32: 24 sums of numbers near 5. The interpreter cuts bfloat16 off where a device rounds.
        step = {torch.float32: 0, torch.bfloat16: 2**-7, torch.float16: 2**-11}[dtype]
        torch.testing.assert_close(found, expected, rtol=step, atol=1e-5)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 9), st.integers(1, 9)),
    levels=st.sampled_from([1, 2, 4, 10_000]),
    seed=st.integers(0, 2**20),
)
def examples(shape: tuple[int, ...], levels: int, seed: int) -> None:
    assert_as_torch(POOLS.pool, *draw(shape, torch.float32, levels=levels, seed=seed))


def blocks() -> None:
    """A whole block with the kernels plugged in, under autocast as well: bits of torch's maxima."""
    torch.manual_seed(0)
    block = SPPF(32).to(memory_format=torch.channels_last).train()
    images = torch.rand(2, 32, 7, 7).contiguous(memory_format=torch.channels_last)
    for autocast in (False, True):
        found = []
        for plugged in (True, False):
            twin = copy.deepcopy(block)
            if plugged:
                set_pools(twin, POOLS)
            with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
                y = twin(images)
            y.float().square().mean().backward()
            found.append((y.detach(), torch.cat([p.grad.flatten() for p in twin.parameters()])))
        assert torch.equal(found[0][0], found[1][0])
        # Torch adds gradients in another order, and rounds to bfloat16 after each.
        off = float((found[0][1] - found[1][1]).norm() / found[1][1].norm())
        assert off < (0.02 if autocast else 1e-6), off


def modes() -> None:
    """The second derivative is refused, as with the other kernels."""
    x, gradient = draw((2, 8, 4, 4), torch.float32, levels=9)
    leaf = x.detach().requires_grad_()
    (first,) = torch.autograd.grad(POOLS.pool(leaf, WINDOW), leaf, gradient.requires_grad_(), create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


ROWS, MANY_ROWS = 64, 256
"""Of a tile: what the interpreter does takes time by tiles, not by their size. Most maps still have several."""
IN_ONE_TILE = (specials, sums)  # about single windows
CHECKS = (shapes, types, places, specials, slices, orders, sums, examples, blocks, modes)


def main() -> None:
    for check in CHECKS:
        kernels._ROWS = MANY_ROWS if check in IN_ONE_TILE else ROWS
        check()
        print(f"{check.__name__}: ok")


if __name__ == "__main__":
    main()
