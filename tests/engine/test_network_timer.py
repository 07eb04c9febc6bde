"""Times of a network's parts: what is heard, and that numbers stay, with recordings and without."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lucid_yolo.engine.network_timer import NetworkTimer
from tests.perf.capture.rig import Rig
from tests.perf.capture.tapes import CallTape

HEARD = ["network", *["heads"] * 5]  # trunk; boxes, coefficients, fusion, prototypes, semantic


@pytest.mark.parametrize(
    ("precision", "recorded"),
    [("bf16-mixed", ()), ("32-true", ("heads",)), ("bf16-mixed", ("network", "heads", "loss"))],
)
def test_each_part_is_timed_under_the_option_that_records_it(precision: str, recorded: tuple[str, ...]) -> None:
    plain, timed = (Rig("segment", precision=precision) for _ in range(2))
    events: list[Any] = []
    recorder = timed.record(CallTape(), *recorded) if recorded else None
    NetworkTimer(
        timed.objective,
        timed.model,
        timed.regions,
        wait=lambda: events.append("wait"),
        add=lambda name, seconds: events.append((name, seconds > 0)),
    )
    for step in range(2):
        events.clear()
        assert torch.equal(plain.gradients(step), timed.gradients(step))
        assert events == [event for name in HEARD for event in ("wait", "wait", (name, True))]
        for one, other in zip(plain.parameters, timed.parameters, strict=True):
            assert (one.grad is None) == (other.grad is None)
            assert one.grad is None or torch.equal(one.grad, other.grad)
        plain.update(), timed.update()
    for name in recorded:
        assert recorder is not None
        assert recorder.outcomes()[f"capture.{name}"]["native_calls"] == 0
