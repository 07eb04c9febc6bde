"""Recording of a whole training step: from the batch to the averaged weights, one graph a size of target rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from lucid_yolo.data.batch import Batch, Targets
from lucid_yolo.optim.flat import FlatGroup, FlatOptimizer
from lucid_yolo.perf.capture.function import Autocast, Call, Fit
from lucid_yolo.perf.capture.region import MAX_RECORDINGS, Region, kept
from lucid_yolo.perf.capture.tape import Tape, Track
from lucid_yolo.perf.capture.values import fill, flatten, itself
from lucid_yolo.perf.capture.watch import ModuleWatch
from lucid_yolo.perf.objective import Mark, StepLosses, unheard

NAME = "step"
TARGETS = 2
"""Position of the targets in what a graph reads of a batch: their rows may grow."""


class TrainedStep(Protocol):
    """What is recorded. Each method reads nothing on the host and has no shape that depends on data.

    Attributes:
        model: the network.
        loss: its objective.
        optimizer: updates the network.
    """

    @property
    def model(self) -> nn.Module: ...  # noqa: D102 - the attributes are described above

    @property
    def loss(self) -> nn.Module: ...  # noqa: D102

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...  # noqa: D102

    def compute_losses(self, batch: Batch, mark: Mark = unheard) -> StepLosses:
        """Losses of a batch, with a graph behind them; ``mark`` hears when the network is done."""
        ...

    def complete_step(self, batch: Batch) -> StepLosses:
        """A step to its end."""
        ...

    def changed_by_step(self) -> list[Tensor]:
        """What a step changes in place, the buffers of the optimizer apart."""
        ...


@dataclass(frozen=True)
class _Recording:
    """One graph.

    Attributes:
        call: fixed places of what it reads of a batch.
        losses: what it computes, at fixed places.
        track: the recording.
    """

    call: Call
    losses: StepLosses
    track: Track


class RecordedStep(Region):
    """A training step as one graph; called with a batch.

    Gradients live inside the graphs: after a replayed step parameters have none. Graphs for different numbers of rows
    share memory.

    Args:
        step: what is recorded.
        tape: records.
        device: of the step.
        warmup: steps before a recording.
    """

    def __init__(self, step: TrainedStep, *, tape: Tape, device: torch.device, warmup: int) -> None:
        super().__init__(NAME, tape, device=device, warmup=warmup)
        assert isinstance(step.optimizer, FlatOptimizer)
        self._step = step
        self._optimizer: FlatOptimizer = step.optimizer
        self._recordings: list[_Recording] = []
        self._watches: list[ModuleWatch] = []
        self._autocast: Autocast | None = None
        self._layout: list[FlatGroup] | None = None
        self._settings: list[object] = []

    def __call__(self, batch: Batch, mark: Mark = unheard) -> StepLosses:
        """Do the step to its end, recorded where that is possible; otherwise compute the losses alone.

        Args:
            batch: on the device.
            mark: hears when the network is done, where it is not replayed.
        """
        tensors, _ = flatten(_read(batch))
        self._look_for_changes()
        fits = [recording.call.fit(tensors) for recording in self._recordings]
        reason = self.ended or self._why_native(fits)
        if reason:
            self.native(reason)
            return self._step.compute_losses(batch, mark)
        recording = self._find(fits) or self._record(batch)
        self._optimizer.refresh()
        fill(recording.call.tensors, tensors)
        self.account.replays += 1
        recording.track.replay()
        losses = recording.losses
        return StepLosses(losses.total.clone(), losses.parts.clone(), is_complete=True)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as the step without a recording: that belongs to one fit."""
        return itself, (self._step.compute_losses,)

    def outcome(self) -> Mapping[str, str | int | float]:
        """What happened, for the plan."""
        account = self.account
        steps = account.replays + account.native_calls
        share = {"replayed_share": round(account.replays / steps, 4)} if steps else {}
        return {**account.as_outcome(), **share}

    def is_out_of_order(self) -> bool:
        """Never: nothing of a graph is needed once another one is replayed."""
        return False

    def release(self) -> None:
        """Drop all recordings."""
        self._recordings = []
        self._watches = []
        self._layout = None

    def _look_for_changes(self) -> None:
        """Retire where something was changed that the recordings hold, or drop them where it may be recorded anew."""
        if not self._recordings:
            return
        found = next((words for watch in self._watches if (words := watch.difference()) is not None), None)
        if found is None and self._autocast != Autocast.current(self.device):
            found = "the precision changed"
        if found is not None:
            self.retire(found)
        elif self._optimizer.layout is not self._layout or self._optimizer.fixed_settings() != self._settings:
            self.release()  # its state was loaded, or a setting of it changed

    def _why_native(self, fits: Sequence[Fit]) -> str | None:
        """Say why a batch can be neither replayed nor recorded; None: it can."""
        if not self._step.model.training:
            return "evaluation mode"
        if self.on_other_stream():
            return "another stream is current"
        if fits and all(fit is Fit.OTHER for fit in fits):
            return "a batch of another shape, type or layout"
        if Fit.HELD not in fits and self.account.recordings == MAX_RECORDINGS:
            self.retire(f"its inputs outgrew {MAX_RECORDINGS} recordings, or its optimizer changed as often")
        return self.account.retired or None

    def _find(self, fits: Sequence[Fit]) -> _Recording | None:
        """The recording of the fewest rows that holds a batch."""
        holding = [one for one, fit in zip(self._recordings, fits, strict=True) if fit is Fit.HELD]
        return min(holding, key=lambda recording: sum(t.numel() for t in recording.call.tensors), default=None)

    def _record(self, batch: Batch) -> _Recording:
        step, optimizer, autocast = self._step, self._optimizer, Autocast.current(self.device)
        call = Call.of(_read(batch), frozenset({TARGETS}))
        call = Call([tensor.detach().clone() for tensor in call.tensors], call.rebuild, call.grows)
        images, gains, targets = call.rebuild(call.tensors)
        fixed = Batch(images=images, targets=targets, gains=gains, indices=batch.indices)

        def differentiate() -> None:
            with torch.enable_grad(), autocast.entered():
                total = step.compute_losses(fixed).total
            with torch.autocast(self.device.type, enabled=False):
                total.backward()  # type: ignore[no-untyped-call]

        def complete() -> list[Tensor]:
            with torch.enable_grad(), autocast.entered():
                losses = step.complete_step(fixed)
            return [losses.total, losses.parts]

        with self.recording(), self._own_gradients():
            if not self._recordings:
                with kept(step.changed_by_step()):
                    self.tape.rehearse(differentiate, 1)
                optimizer.flat_groups()  # the gradients decide how its buffers are laid out
            with kept([*step.changed_by_step(), *_buffers(optimizer)]):
                self.tape.rehearse(complete, self.warmup)
                track = self.tape.record(complete)
        total, parts = track.outputs
        recording = _Recording(call, StepLosses(total, parts, is_complete=True), track)
        self._recordings.append(recording)
        self._watches = [ModuleWatch(module) for module in (step.model, step.loss)]
        self._autocast, self._layout, self._settings = autocast, optimizer.layout, optimizer.fixed_settings()
        return recording

    @contextmanager
    def _own_gradients(self) -> Iterator[None]:
        """Let parameters have the gradients of a recording while it is made, and none before and after."""
        self._optimizer.zero_grad()
        try:
            yield
        finally:
            self._optimizer.zero_grad()


def _read(batch: Batch) -> tuple[Tensor, Tensor, Targets]:
    """What a graph reads of a batch."""
    return batch.images, batch.gains, batch.targets


def _buffers(optimizer: FlatOptimizer) -> list[Tensor]:
    """What an update changes in place beside the parameters."""
    groups = optimizer.layout or ()
    return [t for flat in groups for t in (flat.update, *flat.state.values(), *flat.counters.values())]
