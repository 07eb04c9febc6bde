"""The trial of ``capture=auto``: short fits of the run itself, each with another candidate, in a process of their own.

``python -m lucid_yolo.engine.trial OUT STEPS CANDIDATES OVERRIDES...`` writes what it finds after each candidate:
whoever runs out of patience has what was measured until then.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch

from lucid_yolo.bench.record import write_record
from lucid_yolo.config.compose import compose, to_root
from lucid_yolo.config.errors import LucidError
from lucid_yolo.config.schema import RootConfig
from lucid_yolo.data.batch import Batch
from lucid_yolo.engine.interrupt import FitStopped
from lucid_yolo.engine.prepare import prepare
from lucid_yolo.engine.report import MIB
from lucid_yolo.engine.short_fit import run_short_fit, shortened, synchronise
from lucid_yolo.perf.trial import Trial

WARM_UP = 6  # steps of each candidate before it is timed; recordings are made in the first
WINDOW = 6  # steps between two waits for the device


def measure(root: RootConfig, option: str, *, steps: int) -> Trial:
    """Time a short fit.

    Args:
        root: the run, with the candidate selected.
        option: of ``capture``.
        steps: that are timed.
    """
    prepared = prepare(shortened(root, WARM_UP + steps))
    if prepared.device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(prepared.device)
    clock = WindowClock(prepared.device, steps=steps)
    outcome = run_short_fit(prepared, clock)
    reserved = torch.cuda.max_memory_reserved(prepared.device) if prepared.device.type == "cuda" else 0
    fallen = [row for row in outcome.plan.rows if row.key.startswith("capture.") and row.requested and not row.active]
    if fallen:
        return Trial(option=option, error=f"cannot be had: {fallen[0].reason}")
    seconds = (row.outcome.get("setup_seconds", 0.0) for row in outcome.plan.rows if row.key.startswith("capture."))
    return Trial(
        option=option,
        step_ms=1000 * clock.step_seconds,
        wait_ms=1000 * clock.wait_seconds,
        setup_seconds=sum(map(float, seconds)),
        reserved_mib=reserved / MIB,
    )


class WindowClock(L.Callback):
    """Times windows of a few steps of an epoch, and ends the fit.

    Args:
        device: where it trains.
        steps: that are timed.
    """

    def __init__(self, device: torch.device, *, steps: int) -> None:
        self._device = device
        self._left = steps
        self._done = 0
        self._begun: tuple[float, float] | None = None  # of the running window: clock, and waiting for data so far
        self._length = 0
        self._windows: list[tuple[float, float]] = []  # seconds and waiting a step

    @property
    def step_seconds(self) -> float:
        """Median over the windows."""
        return statistics.median(seconds for seconds, _ in self._windows)

    @property
    def wait_seconds(self) -> float:
        """The same of waiting for data."""
        return statistics.median(waited for _, waited in self._windows)

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Batch, batch_idx: int
    ) -> None:
        """Begin a window."""
        if self._begun is None and self._done >= WARM_UP:
            synchronise(self._device)
            self._begun = self._now(trainer)
            self._length = 0

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        """End a window, perhaps the fit."""
        self._done += 1
        if self._begun is None:
            return
        self._left -= 1
        self._length += 1
        if self._length == WINDOW or trainer.is_last_batch or self._left == 0:
            synchronise(self._device)
            now = self._now(trainer)
            seconds, waited = ((a - b) / self._length for a, b in zip(now, self._begun, strict=True))
            self._windows.append((seconds, waited))
            self._begun = None
        if self._left == 0:
            raise FitStopped

    def _now(self, trainer: L.Trainer) -> tuple[float, float]:
        return time.perf_counter(), float(trainer.train_dataloader.wait_seconds)  # type: ignore[union-attr]


def main(arguments: Sequence[str]) -> int:
    """Measure one candidate after the other.

    Args:
        arguments: file for what is found, steps, candidates joined with commas, overrides of the run.
    """
    out, steps, candidates, *overrides = arguments
    found: list[dict[str, Any]] = []
    for option in candidates.split(","):
        found.append(_attempt(option, [*overrides, f"capture={option}"], steps=int(steps)).as_dict())
        write_record(Path(out), {"trials": found})
    return 0


def _attempt(option: str, overrides: Iterable[str], *, steps: int) -> Trial:
    try:
        return measure(to_root(compose(list(overrides))), option, steps=steps)
    except LucidError as error:
        return Trial(option=option, error=str(error).splitlines()[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
