"""The verb ``profile``: a few dozen steps of the user's own training, taken apart.

The training is the real one, with its loader and every flag of the plan. It goes through four passes: warm-up; host
times, without a synchronisation of our own; the same with a wait for the device after each part; and a trace.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from enum import IntEnum
from functools import partial
from typing import Any

import lightning as L
import torch
from omegaconf import DictConfig

from lucid_yolo.bench.record import environment, write_record
from lucid_yolo.bench.step import LaunchCounter
from lucid_yolo.bench.step_profile import CLIP, FORWARD, LOOP, OPTIMIZER, PARTS, StepProfile, covered
from lucid_yolo.config.compose import to_root
from lucid_yolo.config.errors import RunError
from lucid_yolo.config.paths import resolve_user_path
from lucid_yolo.config.schema import RootConfig
from lucid_yolo.config.verbs import ProfileConfig
from lucid_yolo.data.batch import Batch
from lucid_yolo.engine.interrupt import FitStopped
from lucid_yolo.engine.module import TrainingModule
from lucid_yolo.engine.network_timer import NetworkTimer
from lucid_yolo.engine.part_timer import ClipTimer, PartTimer
from lucid_yolo.engine.prepare import Prepared, prepare
from lucid_yolo.engine.short_fit import run_short_fit, shortened, synchronise
from lucid_yolo.nn.model import Network
from lucid_yolo.optim.flat import FlatOptimizer
from lucid_yolo.perf.objective import Objective

STEP = "profiled step"
# Calls of the CUDA runtime that make the host wait for the device.
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")
TRACED = {"cuda": 5}  # steps of the trace; elsewhere one is counted


class Pass(IntEnum):
    """What a step is used for."""

    WARM_UP = 0
    HOST = 1
    SYNCHRONISED = 2
    TRACE = 3
    DONE = 4


def profile(config: RootConfig | DictConfig, settings: ProfileConfig | None = None) -> StepProfile:
    """Take the training step of a configuration apart.

    Args:
        config: the run; its length and what it writes do not matter.
        settings: number of steps, and a file for the numbers.

    Raises:
        ConfigError: the configuration is refused.
        DataError: the data cannot be used.
        RunError: the fit failed, or ended before all steps were seen.
    """
    settings = settings or ProfileConfig()
    steps = settings.warmup + 2 * settings.steps + max(TRACED.values())
    prepared = prepare(shortened(to_root(config), steps))
    clock = StepClock(prepared.device, warmup=settings.warmup, steps=settings.steps)
    outcome = run_short_fit(prepared, clock)
    if clock.now is not Pass.DONE:
        raise RunError("The training ended before all steps were seen: give it more pictures, or fewer steps=.")
    found = clock.result(prepared, {row.key: row.active for row in outcome.plan.rows})
    if settings.out is not None:
        out = resolve_user_path(settings.out)
        out.parent.mkdir(parents=True, exist_ok=True)
        write_record(out, found.as_dict())
    return found


class StepClock(L.Callback):
    """Follows the steps of a fit through the passes, and ends it.

    Args:
        device: where it trains.
        warmup: steps before anything is timed.
        steps: steps of the passes that time.
    """

    def __init__(self, device: torch.device, *, warmup: int, steps: int) -> None:
        self.now = Pass.WARM_UP
        self._device = device
        self._steps = steps
        self._length = {Pass.HOST: steps, Pass.SYNCHRONISED: steps, Pass.TRACE: TRACED.get(device.type, 1)}
        self._left = warmup
        self._parts = {which: dict.fromkeys((*PARTS, LOOP), 0.0) for which in (Pass.HOST, Pass.SYNCHRONISED)}
        self._below: dict[tuple[str, Pass], dict[str, float]] = {
            (part, which): defaultdict(float) for part in (FORWARD, CLIP, OPTIMIZER) for which in self._parts
        }
        self._timer: PartTimer | None = None
        self._clip_timer: ClipTimer | None = None
        self._last = 0.0
        self._begun: tuple[float, float] | None = None  # of the running step: clock, and waiting for data so far
        self._whole: list[tuple[float, float]] = []  # of each step: all of it, and waiting for data, seconds
        self._tracer: DeviceTracer | OperatorCounter = DeviceTracer() if device.type == "cuda" else OperatorCounter()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Have the module tell where its parts end."""
        assert isinstance(pl_module, TrainingModule)
        pl_module.mark = self._mark

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Time what has parts: around recordings that are in place by now, and after the rules have looked."""
        assert isinstance(pl_module, TrainingModule)
        optimizer = pl_module.optimizer
        if self._timer is not None or not isinstance(optimizer, FlatOptimizer):
            return
        self._timer = PartTimer(optimizer, wait=self._wait, add=partial(self._add, OPTIMIZER))
        self._clip_timer = ClipTimer(pl_module, wait=self._wait, add=partial(self._add, CLIP))
        objective, network, regions = pl_module.objective, pl_module.model, pl_module.task.regions
        if isinstance(objective, Objective) and isinstance(network, Network) and len(set(regions.values())) > 1:
            NetworkTimer(objective, network, regions, wait=self._wait, add=partial(self._add, FORWARD))

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Leave the optimizer as it was."""
        self._end()

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Leave the optimizer as it was."""
        self._end()

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Batch, batch_idx: int
    ) -> None:
        """Begin a step; the one before it, with the wait between them, ends here."""
        moment = time.perf_counter(), trainer.train_dataloader.wait_seconds  # type: ignore[union-attr]
        if self._begun is not None:
            self._whole.append((moment[0] - self._begun[0], moment[1] - self._begun[1]))
        self._begun = moment if self.now is Pass.HOST else None
        if self.now is Pass.TRACE:
            self._tracer.begin_step()
        self._last = time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        """End a step, perhaps a pass, perhaps the fit."""
        self._mark(LOOP)
        if self.now is Pass.TRACE:
            self._tracer.end_step()
        if trainer.is_last_batch:
            self._begun = None  # saving follows: the start of the next step is not the end of this one
        self._left -= 1
        if self._left == 0:
            synchronise(self._device)  # each pass starts with an idle device, and counts what it leaves to do
            self.now = Pass(self.now + 1)
            self._left = self._length.get(self.now, 0)
        if self.now is Pass.DONE:
            self._tracer.stop()
            raise FitStopped

    def result(self, prepared: Prepared, flags: Mapping[str, Any]) -> StepProfile:
        """What the passes gave, as means of one step.

        Args:
            prepared: the run.
            flags: what was active.

        Raises:
            RunError: no step followed another one in its epoch.
        """
        if not self._whole:
            raise RunError(
                "No step was followed by another one of its epoch, so there is no time from one to the next: give it "
                "more pictures, a smaller data.batch_size or more steps=."
            )
        whole, waited = (1000.0 * statistics.fmean(values) for values in zip(*self._whole, strict=True))
        data = prepared.config.data
        return StepProfile(
            steps=self._steps,
            step_ms=whole,
            wait_ms=waited,
            host_ms=self._means(self._parts[Pass.HOST]),
            synchronised_ms=self._means(self._parts[Pass.SYNCHRONISED]),
            optimizer_host_ms=self._means(self._below[OPTIMIZER, Pass.HOST]),
            optimizer_synchronised_ms=self._means(self._below[OPTIMIZER, Pass.SYNCHRONISED]),
            forward_host_ms=self._means(self._below[FORWARD, Pass.HOST]),
            forward_synchronised_ms=self._means(self._below[FORWARD, Pass.SYNCHRONISED]),
            clip_host_ms=self._means(self._below[CLIP, Pass.HOST]),
            clip_synchronised_ms=self._means(self._below[CLIP, Pass.SYNCHRONISED]),
            device_busy_ms=self._tracer.busy_ms,
            launches=self._tracer.launches,
            synchronisations=self._tracer.synchronisations,
            flags=flags,
            data={
                "batch_size": data.batch_size,
                "image_size": data.image_size,
                "train_images": len(prepared.splits.train),
            },
            environment=environment(prepared.device),
        )

    def _means(self, parts: Mapping[str, float]) -> dict[str, float]:
        return {part: 1000.0 * seconds / self._steps for part, seconds in parts.items()}

    def _mark(self, part: str) -> None:
        """A part ends here."""
        self._wait()
        moment = time.perf_counter()
        if self.now in self._parts:
            parts = self._parts[self.now]
            parts[part] = parts.get(part, 0.0) + moment - self._last
        self._last = moment

    def _add(self, above: str, part: str, seconds: float) -> None:
        """Something inside a part of the step took so long."""
        if self.now in self._parts:
            self._below[above, self.now][part] += seconds

    def _wait(self) -> None:
        """Wait for the device in the pass whose times hold its work."""
        if self.now is Pass.SYNCHRONISED:
            synchronise(self._device)

    def _end(self) -> None:
        for timer in (self._timer, self._clip_timer):
            if timer is not None:
                timer.close()


class OperatorCounter:
    """Counts the operators of a step that would launch a kernel, where there is no device to trace."""

    busy_ms: float | None = None
    synchronisations: Mapping[str, float] | None = None

    def __init__(self) -> None:
        self._counter = LaunchCounter()

    def begin_step(self) -> None:
        """Count from here."""
        self._counter.__enter__()  # type: ignore[no-untyped-call]

    def end_step(self) -> None:
        """Count no further."""
        self._counter.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Nothing is left to do."""

    @property
    def launches(self) -> float:
        """Operators of the step."""
        return float(self._counter.launches)


class DeviceTracer:
    """Traces steps on a CUDA device: launches, time the device is busy, waits of the host."""

    def __init__(self) -> None:
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        self._profiler = torch.profiler.profile(activities=activities)
        self._step: torch.profiler.record_function | None = None
        self._steps = 0
        self.busy_ms: float | None = None
        self.launches = 0.0
        self.synchronisations: Mapping[str, float] | None = None

    def begin_step(self) -> None:
        """Trace from here."""
        if self._steps == 0:
            self._profiler.start()
        self._step = torch.profiler.record_function(STEP)
        self._step.__enter__()  # type: ignore[no-untyped-call]

    def end_step(self) -> None:
        """A step ends; the trace goes on."""
        assert self._step is not None
        self._step.__exit__(None, None, None)
        self._steps += 1

    def stop(self) -> None:
        """Read the trace."""
        self._profiler.stop()
        events = self._profiler.events()  # type: ignore[no-untyped-call]
        # Named ranges of the host reach from their first kernel to their last one: they are no work of the device.
        device = [event for event in events if event.device_type.name == "CUDA" and not event.is_user_annotation]
        steps = [event.time_range for event in events if event.device_type.name == "CPU" and event.name == STEP]
        inside = Counter(
            event.name
            for event in events
            if event.name in WAITS and any(step.start <= event.time_range.start <= step.end for step in steps)
        )
        busy = covered((event.time_range.start, event.time_range.end) for event in device)
        self.busy_ms = busy / 1000.0 / self._steps  # the trace counts microseconds
        self.launches = len(device) / self._steps
        self.synchronisations = {name: count / self._steps for name, count in inside.items()}
