"""Exponential moving average of a network."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from lucid_yolo.ops.memory import aligned_starts
from lucid_yolo.optim.flat import KEEP

Slot = tuple[dict[str, Any], str]
"""Where a module keeps a tensor: moving a module replaces its buffers, so every update looks them up."""


class Ema(nn.Module):
    """A copy of a network whose parameters and statistics follow those of the trained one.

    They become views of one buffer, so that an update is a copy and a handful of launches.

    Update number t moves the average towards the network by 1 - decay * (1 - exp(-t / ramp)) of the difference: it
    follows closely at first. Make it, or move it, so that it has the device and memory format of the network.

    Args:
        model: the trained network.
        decay: limit of the decay.
        ramp: updates in which the decay rises to 63 % of its limit.

    Attributes:
        module: the average; always in evaluation mode, without gradients.
        updates: 0-d int64 number of updates that were made.
    """

    updates: Tensor

    def __init__(self, model: nn.Module, *, decay: float, ramp: float) -> None:
        super().__init__()
        self.decay = decay
        self.ramp = ramp
        self.module = copy.deepcopy(model).eval().requires_grad_(requires_grad=False)
        device = next(model.parameters()).device
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64, device=device))
        self._link: _Link | None = None

    @torch.no_grad()
    def update(self, model: nn.Module, *, allowed: Tensor | None = None) -> None:
        """Let the average follow, without reading the device.

        Args:
            model: the trained network.
            allowed: 0-d bool on the network's device, or None; where it is False nothing changes, bit for bit and
                whatever the network holds.
        """
        if self._link is None or self._link.model is not model:
            self._link = _Link(model, list(_slots(model)), list(_slots(self.module)))
        sources = [tensors[name] for tensors, name in self._link.sources]
        averages = [tensors[name] for tensors, name in self._link.averages]
        self.updates.add_(1 if allowed is None else allowed)
        weight = self.decay * torch.exp(self.updates * (-1 / self.ramp)) + (1 - self.decay)
        for part in self._link.parts(averages):
            part.follow([sources[i] for i in part.indices], weight, allowed)

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode."""
        return super().train(mode=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_link": None}


@dataclass
class _Part:
    """Tensors that share device and type.

    Attributes:
        indices: their positions among all.
        average: flat buffer; the averages are views of it.
        difference: flat buffer of the same form.
        views: views of it in the shapes of the tensors.
    """

    indices: list[int]
    average: Tensor
    difference: Tensor
    views: list[Tensor]

    def follow(self, sources: list[Tensor], weight: Tensor, allowed: Tensor | None) -> None:
        """Move the averages by ``weight`` of the way to the sources; what is not floating point is copied."""
        torch._foreach_copy_(self.views, sources)
        if not self.average.is_floating_point():
            new = self.difference if allowed is None else torch.where(allowed, self.difference, self.average)
            self.average.copy_(new)
            return
        self.difference.sub_(self.average).mul_(weight)
        if allowed is not None:
            self.difference.masked_fill_(~allowed, KEEP)
        self.average.add_(self.difference)


class _Link:
    """The tensors of a network and of its average, and the buffers between them."""

    def __init__(self, model: nn.Module, sources: list[Slot], averages: list[Slot]) -> None:
        self.model = model
        self.sources = sources
        self.averages = averages
        self._form: list[object] = []
        self._parts: list[_Part] = []

    def parts(self, averages: list[Tensor]) -> list[_Part]:
        """The averages by device and type; laid out anew where their form or place has changed."""
        if _form(averages) != self._form:
            groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
            for i, a in enumerate(averages):
                groups.setdefault((a.device, a.dtype), []).append(i)
            self._parts = [_lay_out([averages[i] for i in indices], indices) for indices in groups.values()]
            self._form = _form(averages)
        return self._parts


def _form(averages: list[Tensor]) -> list[object]:
    return [(a.data_ptr(), a.stride(), a.dtype, a.device) for a in averages]


def _lay_out(averages: list[Tensor], indices: list[int]) -> _Part:
    """Move averages into one buffer, each aligned as if it lay alone, in its own memory order if that has no gaps."""
    starts, stop = aligned_starts(averages)
    flat, difference = (averages[0].new_zeros(stop) for _ in range(2))
    places, views = (
        [buffer.as_strided(a.shape, _stride(a), start) for a, start in zip(averages, starts, strict=True)]
        for buffer in (flat, difference)
    )
    torch._foreach_copy_(places, averages)
    for average, place in zip(averages, places, strict=True):
        average.data = place
    return _Part(indices, flat, difference, views)


def _stride(tensor: Tensor) -> tuple[int, ...]:
    """Strides of a tensor, or those of a dense one where its memory has gaps or overlaps."""
    return torch.empty_like(tensor, device="meta").stride()


def _slots(model: nn.Module) -> Iterator[Slot]:
    """Every parameter and buffer once, in the order of the modules."""
    seen: set[int] = set()
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield tensors, name
