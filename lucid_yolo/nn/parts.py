"""Pieces of a network that can be called by themselves: what a recorder may take over one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn


class Part(NamedTuple):
    """A piece of a network, with tensors in and tensors out.

    Attributes:
        name: unique in its network.
        modules: hold all its parameters and buffers.
        function: maps tensors and sequences of tensors to nested tensors, and touches no other module.
    """

    name: str
    modules: tuple[nn.Module, ...]
    function: Callable[..., Any]


class PartCaller(Protocol):
    """Calls a part. Whoever records parts puts its own in the place of `directly`."""

    def __call__(self, part: Part, *inputs: Any) -> Any:
        """Do what ``part.function(*inputs)`` does."""
        ...


def directly(part: Part, *inputs: Any) -> Any:
    """Call the function: what a `PartCaller` is unless something records.

    The gradients of an input are added up within the part before they meet those of other parts, as they are where the
    part has a backward pass of its own: the order of a sum decides its last bits.
    """
    return part.function(*map(_own, inputs))


def _own(value: Any) -> Any:
    """The same memory as a node of its own in the graph."""
    if isinstance(value, Tensor):
        return value.view_as(value) if value.requires_grad else value
    return tuple(map(_own, value))


class Span(nn.Module):
    """The modules of a part as one module, for whoever looks at modules; it is in training mode where they are.

    Args:
        part: called as the span is.
    """

    def __init__(self, part: Part) -> None:
        super().__init__()
        self.parts = nn.ModuleList(part.modules)
        self._part = part

    @property
    def training(self) -> bool:
        """Whether the first of the modules is in training mode; all of one network are in the same."""
        return self.parts[0].training

    @training.setter
    def training(self, mode: bool) -> None:
        """A span has no mode of its own."""

    def forward(self, *inputs: Any) -> Any:
        """Call the part."""
        return directly(self._part, *inputs)
