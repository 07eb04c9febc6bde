"""Nested values as lists of tensors and back: what goes into a recording and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

Rebuild = Callable[[Sequence[Tensor]], Any]
"""Makes a nested value of the same form out of other tensors."""


def itself(value: Any) -> Any:
    """The value: how an object is copied and pickled as what it stands for."""
    return value


def flatten(value: Any) -> tuple[list[Tensor], Rebuild]:
    """Take a nested value apart.

    Args:
        value: a tensor or None, or a (named) tuple, list or dataclass of such values.

    Returns:
        its tensors, depth first, and the way back.

    Raises:
        TypeError: there is something else in it, a mistake of ours.
    """
    tensors: list[Tensor] = []
    build = _walk(value, tensors)
    return tensors, lambda given: build(iter(given))


def _walk(value: Any, tensors: list[Tensor]) -> Callable[[Iterator[Tensor]], Any]:
    if isinstance(value, Tensor):
        tensors.append(value)
        return next
    if value is None:
        return lambda given: None
    if is_dataclass(value) and not isinstance(value, type):
        kind, names = type(value), [field.name for field in fields(value)]
        parts = [_walk(getattr(value, name), tensors) for name in names]
        return lambda given: kind(**{name: part(given) for name, part in zip(names, parts, strict=True)})
    if isinstance(value, (tuple, list)):
        parts = [_walk(inner, tensors) for inner in value]
        if hasattr(value, "_fields"):
            make: Callable[..., Any] = type(value)
            return lambda given: make(*(part(given) for part in parts))
        sequence = type(value)
        return lambda given: sequence(part(given) for part in parts)
    raise TypeError(f"{type(value).__name__} is neither a tensor nor None nor a tuple, list or dataclass of them")


@torch.no_grad()
def fill(fixed: Sequence[Tensor], given: Sequence[Tensor]) -> None:
    """Copy tensors into fixed ones, shorter ones into their front with zeros behind; what lies there already stays."""
    places, tensors = [], []
    for place, tensor in zip(fixed, given, strict=True):
        if place.data_ptr() == tensor.data_ptr():
            continue
        front = place
        if place.shape != tensor.shape:
            front = place[: len(tensor)]
            place[len(tensor) :].zero_()
        places.append(front)
        tensors.append(tensor)
    if places:
        torch._foreach_copy_(places, tensors)
