"""Tapes for machines without CUDA: one calls the function again, one repeats the operators of the recorded call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from lucid_yolo.perf.capture.tape import Track

aten = torch.ops.aten


class CallTape:
    """What a step sees of a graph: fixed outputs, whose values alone change with a replay."""

    def __init__(self) -> None:
        self.renewed = 0

    def rehearse(self, function: Callable[[], object], times: int) -> None:
        for _ in range(times):
            function()

    def record(self, function: Callable[[], Sequence[Tensor]]) -> Track:
        outputs = list(function())
        fixed = [output.detach().clone() for output in outputs]
        for output in fixed:  # a graph has computed nothing yet
            output.fill_(float("nan") if output.is_floating_point() else 0)

        def replay() -> None:
            with torch.no_grad():
                for place, value in zip(fixed, function(), strict=True):
                    place.copy_(value)

        return Track(fixed, replay)

    def reserved(self) -> int:
        return 0

    def stream(self) -> int:
        return 0

    def renew(self) -> None:
        self.renewed += 1


class OperatorTape(CallTape):
    """What a graph does: the operators of the recorded call, on the memory of that call, without the Python between.

    Values that Python held, memory that was moved since and methods that were replaced stay what they were.
    """

    def record(self, function: Callable[[], Sequence[Tensor]]) -> Track:
        with _Listener() as heard:
            outputs = [output.detach() for output in function()]
        for output in outputs:  # a graph has computed nothing yet; autograd hears nothing of a replay either
            output.data.fill_(float("nan") if output.is_floating_point() else 0)

        def replay() -> None:
            with torch.no_grad(), torch.autocast("cpu", enabled=False):
                for call in heard.calls:
                    call.repeat()

        return Track(outputs, replay)


@dataclass(frozen=True)
class _Heard:
    """One operator with its memory; ``fresh`` are those of its outputs that lie in no input."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: list[Tensor]
    fresh: list[bool]

    def repeat(self) -> None:
        if self.outputs and not any(self.fresh) and not self.operator._schema.is_mutable:
            return  # a view
        found = _tensors(self.operator(*self.args, **self.kwargs))
        for place, value, fresh in zip(self.outputs, found, self.fresh, strict=True):
            if fresh:
                place.copy_(value)


class _Listener(TorchDispatchMode):
    """Keeps every operator that is called, with aliases of its tensors that stay where they are."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Heard] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in (aten._local_scalar_dense.default, aten.nonzero.default):
            raise RuntimeError(f"{func} waits for the device while a graph is recorded")
        given = tree_map_only(Tensor, Tensor.detach, (args, kwargs or {}))
        outputs = [output.detach() for output in _tensors(result)]
        places = {tensor.untyped_storage().data_ptr() for tensor in _tensors(given)}
        fresh = [output.untyped_storage().data_ptr() not in places for output in outputs]
        self.calls.append(_Heard(func, *given, outputs, fresh))
        return result


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
