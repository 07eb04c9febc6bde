"""Pieces of a network that can be called by themselves: what a recorder may take over one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from torch import nn


class Part(NamedTuple):
    """A piece of a network, with tensors in and tensors out.

    Attributes:
        name: unique in its network.
        modules: hold all its parameters and buffers.
        function: maps nested tensors to nested tensors and touches no other module.
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
    """Call the function: what a `PartCaller` is unless something records."""
    return part.function(*inputs)


class Span(nn.Module):
    """The modules of a part as one module, for whoever looks at modules; it is in training mode where they are.

    Args:
        part: called as the span is.
    """

    def __init__(self, part: Part) -> None:
        super().__init__()
        self.parts = nn.ModuleList(part.modules)
        self._function = part.function

    @property
    def training(self) -> bool:  # type: ignore[override]
        """Whether the first of the modules is in training mode; all of one network are in the same."""
        return self.parts[0].training

    @training.setter
    def training(self, mode: bool) -> None:
        """A span has no mode of its own."""

    def forward(self, *inputs: Any) -> Any:
        """Call the part."""
        return self._function(*inputs)
