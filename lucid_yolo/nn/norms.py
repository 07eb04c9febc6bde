"""Batch normalisation of convolution units: torch's own, or fused with the activation where somebody provides that."""

from __future__ import annotations

from typing import Protocol

import torch.nn.functional as F
from torch import Tensor, nn

from lucid_yolo.nn.providers import provide, withdraw


class Norms(Protocol):
    """Normalises what a convolution gives."""

    def normalise(self, x: Tensor, norm: nn.Module) -> Tensor:
        """Map (B, C, H, W) to the same shape.

        Args:
            x: output of a convolution.
            norm: batch normalisation over C channels, whose running statistics follow.
        """
        ...

    def normalise_and_activate(self, x: Tensor, norm: nn.Module) -> Tensor:
        """The same, and SiLU of it."""
        ...


class StockNorms:
    """One operator after the other: what norms are unless somebody provides others."""

    def normalise(self, x: Tensor, norm: nn.Module) -> Tensor:
        """Call the module."""
        y: Tensor = norm(x)
        return y

    def normalise_and_activate(self, x: Tensor, norm: nn.Module) -> Tensor:
        """Call the module, then SiLU."""
        return F.silu(norm(x))


STOCK = StockNorms()


class Normed(nn.Module):
    """A module that normalises.

    Attributes:
        norms: who does it; not a parameter of the network, and not kept with it.
    """

    norms: Norms = STOCK


def set_norms(network: nn.Module, norms: Norms) -> None:
    """Have a network's maps normalised by somebody.

    Args:
        network: any; a module in it that does not normalise is left alone.
        norms: serve all of its modules.
    """
    provide(network, Normed, "norms", norms)


def forget_norms(network: nn.Module) -> None:
    """Have a network's maps normalised by torch again."""
    withdraw(network, Normed, "norms")
