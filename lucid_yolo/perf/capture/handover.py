"""What recordings of one fit hand to each other without a copy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor


@dataclass
class _Offer:
    """A fixed output.

    Attributes:
        giver: whose output it is.
        gradient: place that its giver reads its gradient from; None where it has none.
        taker: who writes to that place.
    """

    giver: object
    gradient: Tensor | None
    taker: object = None


class Handover:
    """Fixed outputs of recordings, and the places of their gradients, by address.

    What a backward pass returns is written to where the recording that comes next reads it.
    """

    def __init__(self) -> None:
        self._offers: dict[int, _Offer] = {}

    def offer(self, giver: object, outputs: Iterable[Tensor], gradients: Iterable[Tensor | None]) -> None:
        """Make the outputs of a recording known, with the places of their gradients."""
        for output, gradient in zip(outputs, gradients, strict=True):
            self._offers[output.data_ptr()] = _Offer(giver, gradient)

    def withdraw(self, giver: object) -> None:
        """Forget the outputs of a recording."""
        self._offers = {address: offer for address, offer in self._offers.items() if offer.giver is not giver}

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor is a fixed output."""
        return tensor.data_ptr() in self._offers

    def take(self, taker: object, argument: Tensor) -> Tensor | None:
        """The place of the gradient of an argument; None where it has none, or another one writes to it.

        Args:
            taker: the first one to ask has it.
            argument: of that taker.
        """
        offer = self._offers.get(argument.data_ptr())
        if offer is None or offer.taker not in (None, taker):
            return None
        offer.taker = taker
        return offer.gradient
