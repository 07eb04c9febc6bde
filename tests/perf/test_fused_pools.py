"""When the fused kernels pool and when torch does."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor

from lucid_yolo.config.schema import OnUnmet
from lucid_yolo.nn.blocks import SPPF
from lucid_yolo.nn.max_pool import STOCK, StockPools, set_pools
from lucid_yolo.perf import pools as module
from lucid_yolo.perf.fused import FusedKernels
from lucid_yolo.perf.pools import why_stock

CPU = torch.device("cpu")


def make_map(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    x = torch.rand(*(shape or (2, 4, 3, 3)), dtype=dtype).contiguous(memory_format=torch.channels_last)
    return x.requires_grad_()


def test_a_map_of_a_training_step_is_fused() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert why_stock(make_map(dtype=dtype), 5, CPU) == ""
        assert why_stock(make_map(dtype=dtype)[:, 1:3], 5, CPU) == ""


@pytest.mark.parametrize(
    ("x", "window", "device", "reason"),
    [
        (make_map().detach(), 5, CPU, "no training"),
        (make_map(), 3, CPU, "a window of 3"),
        (make_map(), 5, torch.device("cuda"), "a map on cpu"),
        (make_map(dtype=torch.float64), 5, CPU, "a map in torch.float64"),
        (torch.rand(2, 4, 3, 3, requires_grad=True), 5, CPU, "not channels_last"),
        (torch.rand(4, 3, 3, requires_grad=True), 5, CPU, "not channels_last"),
        (make_map(0, 4, 3, 3), 5, CPU, "an empty map"),
    ],
)
def test_what_does_not_fit_is_left_to_torch(x: Tensor, window: int, device: torch.device, reason: str) -> None:
    assert reason in why_stock(x, window, device)
    with torch.no_grad():
        assert why_stock(make_map(), 5, CPU) == "no training"


class Marked(StockPools):
    """Stands in for the kernels."""

    def pool(self, x: Tensor, window: int) -> Tensor:
        return super().pool(x, window) + 1


def test_each_type_is_compiled_once_and_each_map_judged_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    monkeypatch.setattr(module, "_compile", lambda dtype, device: compiled.append(dtype) or Marked())
    pools = FusedKernels(CPU, OnUnmet.RAISE).pools
    for dtype in (torch.float32, torch.float32, torch.bfloat16):
        x = make_map(dtype=dtype)
        assert torch.equal(pools.pool(x, 5), STOCK.pool(x, 5) + 1)
    assert compiled == [torch.float32, torch.bfloat16]
    assert torch.equal(pools.pool(x, 3), STOCK.pool(x, 3))
    assert pools.outcome() == {"calls": 3, "stock_calls": 1, "stock_reason": "a window of 3"}


def test_a_copy_of_the_network_is_torchs() -> None:
    block = SPPF(8)
    set_pools(block, FusedKernels(CPU, OnUnmet.RAISE).pools)
    for twin in (copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
        assert type(twin.pool.pools) is StockPools
        assert twin.state_dict().keys() == block.state_dict().keys()
