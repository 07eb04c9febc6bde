"""What ``kernels=fused`` provides as one: who gets it, what the plan says, and what happens where it cannot be had."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

from lucid_yolo.config.errors import RunError
from lucid_yolo.config.schema import OnUnmet
from lucid_yolo.nn import max_pool
from lucid_yolo.nn import norms as nn_norms
from lucid_yolo.nn.blocks import SPPF
from lucid_yolo.perf import norms, pools
from lucid_yolo.perf.fused import FusedKernels, withdraw_kernels

CPU = torch.device("cpu")


def make_block() -> tuple[nn.Module, torch.Tensor]:
    """Two normalisations, three pools; half of the channels is one more than a multiple of 16."""
    torch.manual_seed(0)
    block = SPPF(34).to(memory_format=torch.channels_last).train()
    return block, torch.rand(2, 34, 6, 6).contiguous(memory_format=torch.channels_last)


def failing(error: Exception) -> Callable[..., object]:
    def compile_(*_: object) -> object:
        raise error

    return compile_


def test_it_normalises_and_pools_until_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norms, "_compile", lambda *_: nn_norms.STOCK)
    monkeypatch.setattr(pools, "_compile", lambda *_: max_pool.STOCK)
    block, x = make_block()
    fused, expected = FusedKernels(CPU, OnUnmet.RAISE), copy.deepcopy(block)(x)
    fused.provide(block)
    assert torch.equal(block(x), expected)
    assert fused.outcome() == {"norm_calls": 2, "norm_stock_calls": 0, "pool_calls": 3, "pool_stock_calls": 0}
    block.eval()
    with torch.no_grad():
        block(x)
    assert fused.outcome() == {
        "norm_calls": 2,
        "norm_stock_calls": 2,
        "norm_stock_reason": "no training",
        "pool_calls": 3,
        "pool_stock_calls": 3,
        "pool_stock_reason": "no training",
    }
    withdraw_kernels(block)
    assert block.pool.pools is max_pool.STOCK
    assert block.reduce.norms is nn_norms.STOCK


@pytest.mark.parametrize("part", [norms, pools])
def test_what_fails_is_named_once_and_torch_does_all_of_it(part: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norms, "_compile", lambda *_: nn_norms.STOCK)
    monkeypatch.setattr(pools, "_compile", lambda *_: max_pool.STOCK)
    monkeypatch.setattr(part, "_compile", failing(RuntimeError("Failed to find C compiler.\nMore.")))
    block, x = make_block()
    fused, twin = FusedKernels(CPU, OnUnmet.FALLBACK), copy.deepcopy(block)
    fused.provide(block)
    message = (
        r"kernels: the fused kernels could not be compiled or started \(RuntimeError: Failed to find C compiler\.\) "
        "-> torch normalises, activates and pools, as with kernels=stock"
    )
    with pytest.warns(UserWarning, match=message) as caught:
        assert torch.equal(block(x), twin(x))
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(block(x), twin(x))
    assert fused.outcome() == {"failure": "RuntimeError: Failed to find C compiler."}


def test_a_real_toolchain_that_cannot_use_a_processor_gives_way_too() -> None:
    block, x = make_block()
    expected = copy.deepcopy(block)(x)
    for only in ("norms", "pools"):
        twin, fused = copy.deepcopy(block), FusedKernels(CPU, OnUnmet.FALLBACK)
        if only == "norms":
            nn_norms.set_norms(twin, fused.norms)
        else:
            max_pool.set_pools(twin, fused.pools)
        with pytest.warns(UserWarning, match="kernels: the fused kernels could not be compiled"):
            assert torch.equal(twin(x), expected)
        assert list(fused.outcome()) == ["failure"]


@pytest.mark.parametrize("part", [norms, pools])
def test_a_measured_run_ends_and_a_full_device_is_no_toolchain(part: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norms, "_compile", lambda *_: nn_norms.STOCK)
    block, x = make_block()
    for error, on_unmet, expected, message in (
        (RuntimeError("no"), OnUnmet.RAISE, RunError, r"kernels=fused: .*RuntimeError: no.*kernels=stock does without"),
        (torch.OutOfMemoryError("full"), OnUnmet.FALLBACK, torch.OutOfMemoryError, "full"),
    ):
        monkeypatch.setattr(part, "_compile", failing(error))
        FusedKernels(CPU, on_unmet).provide(block)
        with pytest.raises(expected, match=message):
            block(x)
