"""Gradients at fixed places: what a recording writes and another one reads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

ALIGNMENT = 64
"""Elements; the allocator aligns gradients no less, and reductions choose their order by it."""


class GradientPlaces:
    """One place in memory for the gradient of each parameter of a fit.

    Args:
        parameters: of one type and device.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        self._known = [id(parameter) for parameter in self.parameters]
        like = self.parameters[0]
        starts, stop = [], 0
        for parameter in self.parameters:
            starts.append(stop)
            stop += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        self.flat = torch.zeros(stop, dtype=like.dtype, device=like.device)
        self.places = [
            self.flat.as_strided(parameter.shape, parameter.stride(), start)
            for start, parameter in zip(starts, self.parameters, strict=True)
        ]

    def are_of(self, parameters: Sequence[Tensor]) -> bool:
        """Whether these are the parameters, in the same order."""
        return [id(parameter) for parameter in parameters] == self._known

    def include(self, parameters: Sequence[Tensor]) -> bool:
        """Whether each of these has a place."""
        return {id(parameter) for parameter in parameters} <= set(self._known)

    def adopt(self) -> tuple[int, ...]:
        """Move the gradients that lie elsewhere to their places.

        Returns:
            positions of the parameters that have a gradient.
        """
        gradients = [parameter.grad for parameter in self.parameters]
        elsewhere = [
            (i, gradient)
            for i, (gradient, place) in enumerate(zip(gradients, self.places, strict=True))
            if gradient is not None and gradient is not place
        ]
        if elsewhere:
            torch._foreach_copy_(self._places([i for i, _ in elsewhere]), [gradient for _, gradient in elsewhere])
            for i, _ in elsewhere:
                self.parameters[i].grad = self.places[i]
        return tuple(i for i, gradient in enumerate(gradients) if gradient is not None)

    def set_aside(self) -> Tensor | None:
        """Copy what has been accumulated so far, before something overwrites the places; None: nothing has."""
        if all(parameter.grad is None for parameter in self.parameters):
            return None
        self.adopt()
        return self.flat.clone()

    def hand_out(self, written: Sequence[int], before: Tensor | None) -> None:
        """Give parameters the gradients that were written to their places.

        Args:
            written: positions of the parameters.
            before: what `set_aside` returned; added to them.
        """
        if before is not None:
            had = [i for i in written if self.parameters[i].grad is not None]
            earlier = [before.as_strided(p.shape, p.stride(), p.storage_offset()) for p in self._places(had)]
            torch._foreach_add_(self._places(had), earlier)
        for i in written:
            self.parameters[i].grad = self.places[i]

    def _places(self, positions: Sequence[int]) -> list[Tensor]:
        return [self.places[i] for i in positions]
