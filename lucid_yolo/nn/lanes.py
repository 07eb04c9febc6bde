"""Stems that do not read each other: one after the other, or side by side where somebody provides for that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor, nn

from lucid_yolo.nn.providers import provide, withdraw


class Lanes(Protocol):
    """Runs functions that do not depend on each other."""

    def fork(self) -> None:
        """Let what is run from now on read what has been computed so far."""
        ...

    def run(self, functions: Sequence[Callable[[Tensor], Tensor]], inputs: Sequence[Tensor]) -> list[Tensor]:
        """Apply one function to one input each.

        Args:
            functions: each depends on nothing but its input, which was there when `fork` was called.
            inputs: as many.

        Returns:
            The outputs, ready for whoever goes on.
        """
        ...


class InTurn:
    """One after the other: what lanes are unless somebody provides others."""

    def fork(self) -> None:
        """Everything is ready by itself."""

    def run(self, functions: Sequence[Callable[[Tensor], Tensor]], inputs: Sequence[Tensor]) -> list[Tensor]:
        """Call one after the other."""
        return [function(x) for function, x in zip(functions, inputs, strict=True)]


IN_TURN = InTurn()


class Laned(nn.Module):
    """A module that runs stems in lanes.

    Attributes:
        lanes: who runs them; not a parameter of the network, and not kept with it.
    """

    lanes: Lanes = IN_TURN


def set_lanes(network: nn.Module, lanes: Lanes) -> None:
    """Have a network's stems run by somebody.

    Args:
        network: any; a module in it that has no lanes is left alone.
        lanes: serve all of its modules.
    """
    provide(network, Laned, "lanes", lanes)


def forget_lanes(network: nn.Module) -> None:
    """Have a network's stems run one after the other again."""
    withdraw(network, Laned, "lanes")
