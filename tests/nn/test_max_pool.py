"""Max pools with a gradient that is gathered, and who computes them."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lucid_yolo.nn.blocks import SPPF
from lucid_yolo.nn.max_pool import STOCK, GatherMaxPool, MaxPool, StockPools, forget_pools, max_pool, set_pools


@given(
    seed=st.integers(0, 1000),
    levels=st.sampled_from([1, 2, 3, 1000]),  # few levels: many equal values in a window
    window=st.sampled_from([3, 5]),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
)
def test_value_and_gradient_are_those_of_torch(seed: int, levels: int, window: int, height: int, width: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(levels, (2, 3, height, width), generator=generator).double().requires_grad_()
    y = x.detach().clone().requires_grad_()
    ours, native = GatherMaxPool.apply(x, window), F.max_pool2d(y, window, stride=1, padding=window // 2)
    assert torch.equal(ours, native)
    grad = torch.randint(-9, 9, native.shape, generator=generator).double()  # whole numbers: sums are exact
    ours.backward(grad)
    native.backward(grad)
    assert torch.equal(x.grad, y.grad)


def test_chained_pools_of_plateaus() -> None:
    x = torch.randint(5, (1, 2, 12, 12), generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    y = x.detach().clone().requires_grad_()
    GatherMaxPool.apply(GatherMaxPool.apply(x, 5), 5).square().sum().backward()
    max_pool(max_pool(y, 5), 5).square().sum().backward()
    assert torch.equal(x.grad, y.grad)


def test_gradcheck() -> None:
    x = torch.randperm(2 * 5 * 6, generator=torch.Generator().manual_seed(0)).double().view(1, 2, 5, 6)
    assert torch.autograd.gradcheck(lambda t: GatherMaxPool.apply(t, 3), x.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradient_keeps_type_and_memory_format(dtype: torch.dtype) -> None:
    x = torch.randn(2, 8, 6, 6).to(dtype).to(memory_format=torch.channels_last).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = GatherMaxPool.apply(x, 5)
        y.backward(torch.ones_like(y))
    assert y.dtype == x.grad.dtype == dtype
    assert x.grad.is_contiguous(memory_format=torch.channels_last)


def test_traces_without_a_break() -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return GatherMaxPool.apply(x, 5).square().sum()

    x = torch.randn(1, 2, 6, 6, requires_grad=True)
    (expected,) = torch.autograd.grad(loss(x), x)
    (traced,) = torch.autograd.grad(torch.compile(loss, fullgraph=True, backend="aot_eager")(x), x)
    assert torch.equal(traced, expected)


class Doubling:
    """Pools as torch does, twice as large; counts."""

    def __init__(self) -> None:
        self.windows: list[int] = []

    def pool(self, x: Tensor, window: int) -> Tensor:
        self.windows.append(window)
        return 2 * STOCK.pool(x, window)


def test_somebody_else_serves_all_pools_until_forgotten() -> None:
    torch.manual_seed(0)
    block, pools, x = SPPF(8).eval(), Doubling(), torch.randn(2, 8, 6, 6)
    before, level = block(x), block.reduce(x)
    set_pools(block, pools)
    levels = [level]
    for _ in range(3):
        levels.append(2 * F.max_pool2d(levels[-1], 5, 1, 2))
    assert torch.equal(block(x), x + block.fuse(torch.cat(levels, dim=1)))
    assert pools.windows == [5, 5, 5]
    assert {name.split(".")[0] for name in block.state_dict()} == {"reduce", "fuse"}  # a pool keeps nothing
    forget_pools(block)
    assert torch.equal(block(x), before)


def test_a_compiler_sees_torchs_operators() -> None:
    layer, pools, x = MaxPool(3), Doubling(), torch.randn(1, 4, 6, 6)
    expected = layer(x)
    set_pools(layer, pools)
    assert torch.equal(torch.compile(layer, backend="eager", fullgraph=True)(x), expected)
    assert pools.windows == []


def test_stock_stays_stock_when_a_network_is_copied() -> None:
    layer = MaxPool(5)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(twin.pools) is StockPools
        assert "pools" not in vars(twin)
