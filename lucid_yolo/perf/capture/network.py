"""A network whose parts are recorded by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from lucid_yolo.nn.cast import CastOnce
from lucid_yolo.nn.model import Network
from lucid_yolo.nn.parts import Part, PartCaller, Span
from lucid_yolo.perf.capture.function import FunctionRegion
from lucid_yolo.perf.capture.region import retire_together
from lucid_yolo.perf.capture.values import itself
from lucid_yolo.perf.capture.watch import ModuleWatch


class NetworkInParts:
    """A network whose parts are called one by one, some of them recorded; called as the network.

    A part whose own modules change is given up by itself. What lies between the parts (the network, its head) is
    watched here: where that changes all recordings are given up, and the network is called as a whole.

    Args:
        network: what is called.
        take_over: makes what is called in the place of a part, of its name and modules, when it is first met.

    Attributes:
        call_part: calls a part; whoever measures may put its own around it.
    """

    def __init__(self, network: Network[Any, Any], take_over: Callable[[str, Span], Callable[..., Any]]) -> None:
        self._network = network
        self._whole = CastOnce(network)
        self._take_over = take_over
        self._taken: dict[str, Callable[..., Any]] = {}
        self._spans: list[Span] = []
        self._regions: list[FunctionRegion] = []
        self._watch: ModuleWatch | None = None
        self._in_parts = True
        self.call_part: PartCaller = self._call

    def __call__(self, images: Tensor) -> Any:
        """Do what the network does."""
        if self._watch is not None and (difference := self._watch.difference()) is not None:
            self._in_parts, self._watch = False, None
            retire_together(self._regions, difference)
        if not self._in_parts:
            for region in self._regions:
                region.native(region.ended)
            return self._whole(images)
        predictions = self._network.compute(images, self.call_part)
        if self._watch is None and any(region.account.recordings for region in self._regions):
            self._watch = ModuleWatch(self._network, without=self._spans)
        return predictions

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as the network: recordings belong to one fit."""
        return itself, (self._whole,)

    def _call(self, part: Part, *inputs: Any) -> Any:
        if part.name not in self._taken:
            span = Span(part)
            taken = self._taken[part.name] = self._take_over(part.name, span)
            self._spans.append(span)
            self._regions += [taken] if isinstance(taken, FunctionRegion) else []
        return self._taken[part.name](*inputs)
