"""A tape for machines without CUDA: a replay calls the function again and writes into the same outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lucid_yolo.perf.capture.tape import Track


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
