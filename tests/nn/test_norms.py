"""Normalisation of convolution units is handed to whoever provides it, all of it, and with the same numbers."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lucid_yolo.nn.blocks import BatchNorm2d, ConvNorm, ConvUnit
from lucid_yolo.nn.norms import STOCK, Normed, StockNorms, forget_norms, set_norms
from tests.nn.test_lanes import NETWORKS, same


class Written:
    """Written out from the definition of a batch normalisation, with a list of what it was asked for."""

    def __init__(self) -> None:
        self.seen: list[tuple[nn.Module, bool]] = []

    def normalise(self, x: Tensor, norm: nn.Module) -> Tensor:
        self.seen.append((norm, False))
        return norm(x)

    def normalise_and_activate(self, x: Tensor, norm: nn.Module) -> Tensor:
        self.seen.append((norm, True))
        return F.silu(norm(x))


@pytest.mark.parametrize("unit", [ConvNorm, ConvUnit])
def test_a_unit_normalises_by_its_batch_and_activates_where_it_says_so(unit) -> None:
    torch.manual_seed(0)
    module, x = unit(4, 6, 3).train(), torch.rand(2, 4, 5, 5)
    y = module.conv(x)
    mean, var = y.mean(dim=(0, 2, 3), keepdim=True), y.var(dim=(0, 2, 3), keepdim=True, unbiased=False)
    z = (y - mean) / (var + 1e-5).sqrt()
    torch.testing.assert_close(module(x), z / (1 + (-z).exp()) if unit is ConvUnit else z)


@pytest.mark.parametrize("task", NETWORKS)
def test_every_normalisation_is_handed_over_and_nothing_else_changes(task: str) -> None:
    torch.manual_seed(0)
    network = NETWORKS[task][0]().train()
    twin, norms, images = copy.deepcopy(network), Written(), torch.rand(2, 3, 64, 64)
    set_norms(network, norms)
    assert same(network(images), twin(images))
    handed = {id(norm): activated for norm, activated in norms.seen}
    assert len(handed) == len(norms.seen) == sum(isinstance(m, BatchNorm2d) for m in network.modules())
    assert all(handed[id(m.norm)] == isinstance(m, ConvUnit) for m in network.modules() if isinstance(m, ConvNorm))
    assert network.state_dict().keys() == twin.state_dict().keys()
    assert [name for name, _ in network.named_modules()] == [name for name, _ in twin.named_modules()]
    forget_norms(network)
    assert all(module.norms is STOCK for module in network.modules() if isinstance(module, Normed))


def test_stock_stays_stock_when_a_network_is_copied() -> None:
    unit = ConvUnit(3, 4)
    for twin in (copy.deepcopy(unit), pickle.loads(pickle.dumps(unit))):
        assert type(twin.norms) is StockNorms
        assert "norms" not in vars(twin)
