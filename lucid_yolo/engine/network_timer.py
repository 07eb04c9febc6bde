"""Times of the parts of a network that options of ``capture`` record by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from lucid_yolo.engine.part_timer import timed
from lucid_yolo.nn.cast import CastOnce
from lucid_yolo.nn.model import Network
from lucid_yolo.nn.parts import Part, PartCaller, Span, directly
from lucid_yolo.perf.capture.network import NetworkInParts
from lucid_yolo.perf.objective import Objective


class NetworkTimer:
    """Times the forward pass of a network part by part, recorded or not; a ``PartCaller``.

    Its numbers stay those of a network that is called as a whole.

    Args:
        objective: its network is called part by part from now on.
        network: what the objective calls.
        regions: option of ``capture`` by part of the network.
        wait: called before and after each part, so that the device's work may be in its time.
        add: told name and seconds of a part: the option that records it.
    """

    def __init__(
        self,
        objective: Objective,
        network: Network[Any, Any],
        regions: Mapping[str, str],
        *,
        wait: Callable[[], None],
        add: Callable[[str, float], None],
    ) -> None:
        self._regions = regions
        self._wait = wait
        self._add = add
        self._run: PartCaller = directly
        if isinstance(objective.network, NetworkInParts):
            self._run = objective.network.call_part
            objective.network.call_part = self
        else:
            whole = Part("network", (network,), partial(network.compute, call=self))
            objective.network = CastOnce(Span(whole))

    def __call__(self, part: Part, *inputs: Any) -> Any:
        """Call one part."""
        return timed(partial(self._run, part, *inputs), self._regions[part.name], wait=self._wait, add=self._add)
