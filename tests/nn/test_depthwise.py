"""Depthwise convolutions, and who computes them."""

from __future__ import annotations

import copy
import pickle

import torch
from torch import Tensor, nn

from lucid_yolo.config.schema import OnUnmet
from lucid_yolo.nn.blocks import ConvUnit
from lucid_yolo.nn.depthwise import STOCK, DepthwiseConv2d, StockFilters, forget_filters, set_filters
from lucid_yolo.perf.depthwise import TritonFilters
from tests.perf.kernels.depthwise_cases import SMALL, bound, errors


class Doubling:
    """Filters as torch does, twice as large; counts."""

    def __init__(self) -> None:
        self.calls = 0

    def filter(self, x: Tensor, weight: Tensor) -> Tensor:
        self.calls += 1
        return 2 * STOCK.filter(x, weight)


def test_torchs_own_is_the_definition() -> None:
    case = SMALL[0]
    assert max(errors(STOCK.filter, case, "cpu")) < bound(case[1])


def test_only_layers_of_one_filter_a_channel_are_depthwise() -> None:
    kinds = [type(ConvUnit(8, 8, 3, groups=8).conv), type(ConvUnit(8, 8, 3).conv), type(ConvUnit(8, 4).conv)]
    assert kinds == [DepthwiseConv2d, nn.Conv2d, nn.Conv2d]


def test_somebody_else_serves_all_layers_until_forgotten() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(DepthwiseConv2d(4, 3), nn.Conv2d(4, 4, 1, bias=False), DepthwiseConv2d(4, 5))
    x, filters = torch.randn(1, 4, 6, 6), Doubling()
    before = network(x)
    set_filters(network, filters)
    torch.testing.assert_close(network(x), 4 * before)
    assert filters.calls == 2
    assert list(network.state_dict()) == ["0.weight", "1.weight", "2.weight"]
    forget_filters(network)
    assert torch.equal(network(x), before)


def test_a_compiler_sees_torchs_operator() -> None:
    layer, filters = DepthwiseConv2d(4, 3), Doubling()
    x = torch.randn(1, 4, 6, 6)
    expected = layer(x)
    set_filters(layer, filters)
    assert torch.equal(torch.compile(layer, backend="eager", fullgraph=True)(x), expected)
    assert filters.calls == 0


def test_copied_and_pickled_with_torchs_own() -> None:
    layer = DepthwiseConv2d(4, 3)
    set_filters(layer, TritonFilters(OnUnmet.RAISE))
    x = torch.randn(1, 4, 6, 6)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert isinstance(twin.filters, StockFilters)
        assert torch.equal(twin(x), layer(x))  # on a CPU the kernels are torch's
