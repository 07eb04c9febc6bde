"""Size of a network: parameters and arithmetic."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode


class Deployable(Protocol):
    """A network with a deployed view."""

    def one_to_one_forward(self, images: Tensor) -> Any:
        """Run the view that a deployed network runs."""


@dataclass(frozen=True)
class Complexity:
    """Size of a network.

    Attributes:
        parameters: trained parameters, both branches.
        flops: operations of one image through the deployed view, two a multiply-accumulate of a convolution or matrix
            product.
    """

    parameters: int
    flops: int


def count(model: Deployable, image_size: int) -> Complexity:
    """Count parameters and floating-point operations; nothing is computed and the model is left alone.

    Args:
        model: a network on any device; ``meta`` is the cheapest.
        image_size: side of the square image in pixels.
    """
    assert isinstance(model, torch.nn.Module)
    parameters = sum(p.numel() for p in model.parameters())
    shadow = copy.deepcopy(model).to("meta").eval()
    for module in list(shadow.modules()):
        for name, child in module.named_children():
            if isinstance(child, torch.nn.BatchNorm2d):  # counts for nothing, and is slow to trace on the meta device
                setattr(module, name, torch.nn.Identity())
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        shadow.one_to_one_forward(torch.empty(1, 3, image_size, image_size, device="meta"))
    return Complexity(parameters, counter.get_total_flops())
