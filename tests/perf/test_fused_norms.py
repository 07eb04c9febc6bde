"""When the fused kernels normalise and when torch does."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lucid_yolo.config.schema import OnUnmet
from lucid_yolo.nn.blocks import BatchNorm2d, ConvUnit
from lucid_yolo.nn.norms import STOCK, StockNorms, set_norms
from lucid_yolo.perf import norms as module
from lucid_yolo.perf.fused import FusedKernels
from lucid_yolo.perf.norms import why_stock

CPU = torch.device("cpu")


def make_map(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(*(shape or (2, 4, 3, 3)), dtype=dtype).contiguous(memory_format=torch.channels_last)


def test_a_map_of_a_training_step_is_fused() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert why_stock(make_map(dtype=dtype), BatchNorm2d(4), CPU) == ""


def changed(change: Callable[[BatchNorm2d], object]) -> BatchNorm2d:
    norm = BatchNorm2d(4)
    change(norm)
    return norm


@pytest.mark.parametrize(
    ("x", "norm", "device", "reason"),
    [
        (make_map(), BatchNorm2d(4).eval(), CPU, "no training"),
        (make_map(), nn.BatchNorm2d(4), CPU, "another kind (BatchNorm2d)"),
        (make_map(), nn.Identity(), CPU, "another kind (Identity)"),
        (make_map(), changed(lambda n: setattr(n, "momentum", None)), CPU, "another kind"),
        (make_map(), BatchNorm2d(4).half(), CPU, "another kind"),
        (make_map(), changed(lambda n: n.register_forward_hook(print)), CPU, "hooks"),
        (make_map(), changed(lambda n: n.register_forward_pre_hook(print)), CPU, "hooks"),
        (make_map(), changed(lambda n: n.register_full_backward_hook(print)), CPU, "hooks"),
        (make_map(), changed(lambda n: setattr(n, "forward", n.forward)), CPU, "a forward of its own"),
        (make_map(), changed(lambda n: n.requires_grad_(False)), CPU, "frozen"),
        (make_map(), changed(lambda n: n.bias.requires_grad_(False)), CPU, "frozen"),
        (make_map(), BatchNorm2d(4), torch.device("cuda"), "a map on cpu"),
        (make_map(), BatchNorm2d(4).to("meta"), CPU, "a map on cpu"),
        (make_map(dtype=torch.float64), BatchNorm2d(4), CPU, "a map in torch.float64"),
        (torch.rand(2, 4, 3, 3), BatchNorm2d(4), CPU, "not channels_last"),
        (torch.rand(4, 3, 3), BatchNorm2d(4), CPU, "not channels_last"),
        (make_map(1, 4, 1, 1), BatchNorm2d(4), CPU, "one position"),
        (make_map(0, 4, 3, 3), BatchNorm2d(4), CPU, "one position"),
    ],
)
def test_what_does_not_fit_is_left_to_torch(x, norm, device, reason) -> None:
    assert reason in why_stock(x, norm, device)
    with torch.no_grad():
        assert why_stock(make_map(), BatchNorm2d(4), CPU) == "no training"


def test_hooks_of_the_process_are_called() -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert "hooks" in why_stock(make_map(), BatchNorm2d(4), CPU)
    finally:
        handle.remove()


class Marked(StockNorms):
    """Stands in for the kernels."""

    def normalise_and_activate(self, x: Tensor, norm: nn.Module) -> Tensor:
        return super().normalise_and_activate(x, norm) + 1


def test_calls_are_counted_and_each_map_is_judged_by_itself(monkeypatch) -> None:
    compiled: list[object] = []
    monkeypatch.setattr(module, "_compile", lambda x, norm: compiled.append(norm) or Marked())
    norms, unit, x = FusedKernels(CPU, OnUnmet.RAISE).norms, ConvUnit(3, 4).train(), torch.rand(2, 3, 5, 5)
    set_norms(unit.to(memory_format=torch.channels_last), norms)
    twin = copy.deepcopy(unit)
    twin.norms = STOCK
    assert torch.equal(unit(x), twin(x) + 1)
    assert torch.equal(unit(x), twin(x) + 1)
    assert len(compiled) == 1
    assert torch.equal(unit.eval()(x), twin.eval()(x))
    assert norms.outcome() == {"calls": 2, "stock_calls": 1, "stock_reason": "no training"}


def test_a_copy_of_the_network_is_torchs() -> None:
    unit = ConvUnit(3, 4)
    set_norms(unit, FusedKernels(CPU, OnUnmet.RAISE).norms)
    for twin in (copy.deepcopy(unit), pickle.loads(pickle.dumps(unit))):
        assert type(twin.norms) is StockNorms
        assert twin.state_dict().keys() == unit.state_dict().keys()
