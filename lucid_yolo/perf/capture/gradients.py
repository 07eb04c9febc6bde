"""Gradients at fixed places: what a recording writes and another one reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import is_

import torch
from torch import Tensor

from lucid_yolo.ops.memory import aligned_starts
from lucid_yolo.optim.flat import gradient_stride


@dataclass(frozen=True, slots=True)
class Gathered:
    """Gradients whose values are at their places.

    Attributes:
        connected: for each parameter whether it has a gradient.
        elsewhere: the gradients that lie elsewhere.
        copies: their places, which hold copies of them.
    """

    connected: tuple[bool, ...]
    elsewhere: list[Tensor] = field(default_factory=list)
    copies: list[Tensor] = field(default_factory=list)

    def give_back(self) -> None:
        """Copy what the places hold by now to the gradients that lie elsewhere."""
        if self.elsewhere:
            torch._foreach_copy_(self.elsewhere, self.copies)


class GradientPlaces:
    """One place in memory for the gradient of each parameter of a fit.

    What runs in every step runs for hundreds of parameters: it compares and hands on, and makes no tensor for each.

    Args:
        parameters: of one type and device.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        self._known = {id(parameter) for parameter in self.parameters}
        like = self.parameters[0]
        self._starts, stop = aligned_starts(self.parameters)
        self.flat = torch.zeros(stop, dtype=like.dtype, device=like.device)
        self.places = [
            self.flat.as_strided(parameter.shape, parameter.stride(), start)
            for start, parameter in zip(self._starts, self.parameters, strict=True)
        ]
        self._all = (True,) * len(self.parameters)
        self._away: list[int] = []  # positions of the gradients that lay elsewhere when some last did
        self._copies: list[Tensor] = []  # their places
        self._aside: tuple[Tensor, list[Tensor]] | None = None  # memory like that of the places, and what lies there

    def are_of(self, parameters: Sequence[Tensor]) -> bool:
        """Whether these are the parameters, in the same order."""
        return len(parameters) == len(self.parameters) and all(map(is_, parameters, self.parameters))

    def include(self, parameters: Sequence[Tensor]) -> bool:
        """Whether each of these has a place."""
        return {id(parameter) for parameter in parameters} <= self._known

    def gather(self) -> Gathered:
        """Copy the gradients that lie elsewhere to their places; the gradients stay where they are."""
        gradients = [parameter.grad for parameter in self.parameters]
        if all(map(is_, gradients, self.places)):
            return Gathered(self._all)
        found = [
            (i, gradient)
            for i, (gradient, place) in enumerate(zip(gradients, self.places, strict=True))
            if gradient is not None and gradient is not place
        ]
        connected = tuple([gradient is not None for gradient in gradients])
        if not found:
            return Gathered(connected)
        away, elsewhere = [i for i, _ in found], [gradient for _, gradient in found]
        if away != self._away:  # other strides later are only slower
            self._away, self._copies = away, self.fit(away, elsewhere)
        torch._foreach_copy_(self._copies, elsewhere)
        return Gathered(connected, elsewhere, self._copies)

    def of(self, connected: Sequence[bool]) -> list[Tensor]:
        """Places of the parameters that have a gradient."""
        return [place for place, is_connected in zip(self.places, connected, strict=True) if is_connected]

    def fit(self, positions: Sequence[int], gradients: Sequence[Tensor]) -> list[Tensor]:
        """Give places the strides of gradients where that is the same memory, so that both look alike to a step.

        Args:
            positions: of the parameters.
            gradients: of these.

        Returns:
            the places.
        """
        for i, gradient in zip(positions, gradients, strict=True):
            place = self.places[i]
            stride = gradient_stride(place, gradient)
            if stride != place.stride():
                self.places[i] = place.as_strided(place.shape, stride, place.storage_offset())
                self._aside = None
        return self._places(positions)

    def set_aside(self, written: Sequence[int]) -> Sequence[Tensor] | None:
        """Copy what has been accumulated so far, before something overwrites places; None: nothing has there.

        Args:
            written: positions of the parameters whose places will be overwritten.

        Returns:
            A copy for each parameter, of use for those that are written and have a gradient, and good until the next
            call.
        """
        had = [(i, gradient) for i in written if (gradient := self.parameters[i].grad) is not None]
        if not had:
            return None
        away = [(i, gradient) for i, gradient in had if gradient is not self.places[i]]
        if away:
            gradients = [gradient for _, gradient in away]
            torch._foreach_copy_(self.fit([i for i, _ in away], gradients), gradients)
        if self._aside is None:
            flat = torch.empty_like(self.flat)
            self._aside = flat, [flat.as_strided(p.shape, p.stride(), p.storage_offset()) for p in self.places]
        flat, copies = self._aside
        first, last = min(written), max(written)  # what lies between them may be of others; one copy is faster
        stretch = slice(self._starts[first], self._starts[last] + self.parameters[last].numel())
        flat[stretch].copy_(self.flat[stretch])
        return copies

    def hand_out(self, written: Sequence[int], before: Sequence[Tensor] | None) -> None:
        """Give parameters the gradients that were written to their places.

        Args:
            written: positions of the parameters.
            before: what `set_aside` returned; added to them.
        """
        if before is not None:
            had = [i for i in written if self.parameters[i].grad is not None]
            if had:
                torch._foreach_add_(self._places(had), [before[i] for i in had])
        for i in written:
            self.parameters[i].grad = self.places[i]

    def _places(self, positions: Sequence[int]) -> list[Tensor]:
        return [self.places[i] for i in positions]
