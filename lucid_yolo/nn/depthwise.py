"""Depthwise convolutions: torch's own, or those of somebody who provides others."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lucid_yolo.nn.providers import provide, withdraw


class Filters(Protocol):
    """Filters each channel of a map by itself."""

    def filter(self, x: Tensor, weight: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape; outside of the map is 0.

        Args:
            x: what a layer reads.
            weight: (C, 1, K, K), K odd; autocast has not seen it.
        """
        ...


class StockFilters:
    """torch's convolution: what filters are unless somebody provides others."""

    def filter(self, x: Tensor, weight: Tensor) -> Tensor:
        """Convolve in as many groups as there are channels."""
        return F.conv2d(x, weight, padding=weight.shape[-1] // 2, groups=len(weight))


STOCK = StockFilters()


class DepthwiseConv2d(nn.Conv2d):
    """One bias-free filter a channel at stride 1, with "same" padding.

    Args:
        channels: of input and output.
        kernel: side of the filters, odd.

    Attributes:
        filters: who computes; not a parameter of the network, and not kept with it.
    """

    filters: Filters = STOCK

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__(channels, channels, kernel, padding=kernel // 2, groups=channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        filters = STOCK if torch.compiler.is_compiling() else self.filters  # a compiler looks for the operator
        return filters.filter(x, self.weight)


def set_filters(network: nn.Module, filters: Filters) -> None:
    """Have a network's depthwise convolutions computed by somebody.

    Args:
        network: any; other layers are left alone.
        filters: serve all of its layers.
    """
    provide(network, DepthwiseConv2d, "filters", filters)


def forget_filters(network: nn.Module) -> None:
    """Have a network's depthwise convolutions computed by torch again."""
    withdraw(network, DepthwiseConv2d, "filters")
