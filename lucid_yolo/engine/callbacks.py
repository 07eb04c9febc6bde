"""What happens around the steps of a fit: reading losses, validating, saving, stopping."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch

from lucid_yolo.config.errors import RunError
from lucid_yolo.data.batch import Batch
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.loader import TrainLoader
from lucid_yolo.engine.checkpoint import BLOCK, ModelInfo, save_atomically
from lucid_yolo.engine.interrupt import FitStopped, StopSignal
from lucid_yolo.engine.metrics_log import MetricsLog
from lucid_yolo.engine.module import TrainingModule
from lucid_yolo.engine.progress import EpochRow, Progress
from lucid_yolo.engine.run_dir import RunDir
from lucid_yolo.engine.step_log import StepWindow
from lucid_yolo.engine.timing import FitTiming

MIB = 1024 * 1024


def is_last_epoch(trainer: L.Trainer) -> bool:
    """Whether the fit ends with the running epoch."""
    assert trainer.max_epochs is not None
    return leaves_early(trainer) or trainer.current_epoch + 1 >= trainer.max_epochs


def leaves_early(trainer: L.Trainer) -> bool:
    """Whether the loop ends at once: its updates are done, or a callback of the user asked for it."""
    return trainer.should_stop or 0 <= trainer.max_steps <= trainer.global_step


class StepReader(L.Callback):
    """Reads the losses every few steps, keeps time, logs, shows progress and stops a diverged run."""

    def __init__(
        self,
        *,
        loader: TrainLoader,
        index: SplitIndex,
        metrics: MetricsLog,
        progress: Progress,
        timing: FitTiming,
        run_dir: RunDir,
        part_names: Sequence[str],
    ) -> None:
        self._loader = loader
        self._index = index
        self._metrics = metrics
        self._progress = progress
        self._timing = timing
        self._run_dir = run_dir
        self._names = ("train/total", *(f"train/{name}" for name in part_names))
        self._window_start = 0.0
        self._step_start: float | None = None
        self._waited = 0.0
        self._images = 0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the clock; peaks of memory are those of the fit."""
        if pl_module.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(pl_module.device)
        self._progress.start(trainer.max_epochs or 0, int(trainer.num_training_batches))
        self._restart_window()

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Batch, batch_idx: int
    ) -> None:
        """Note when the first step of a window begins."""
        if self._step_start is None:
            self._step_start = time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        """Read when the buffer is full, after the first step of the run and after the last one of an epoch."""
        assert isinstance(pl_module, TrainingModule)
        assert pl_module.step_log is not None
        self._images += len(batch.indices)
        first = self._timing.first_step_seconds is None
        if first or pl_module.step_log.full or trainer.is_last_batch:
            self._read(trainer, pl_module, first=first, batches_done=batch_idx + 1)
        else:
            self._progress.advance(batch_idx + 1)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Read what an epoch that ended early left in the buffer."""
        assert isinstance(pl_module, TrainingModule)
        if pl_module.step_log:
            self._read(trainer, pl_module, first=False, batches_done=int(trainer.num_training_batches))

    def resume_clock(self) -> None:
        """Go on after validation and saving, which are no training time."""
        self._restart_window()

    def _restart_window(self) -> None:
        self._window_start = time.perf_counter()
        self._step_start = None
        self._waited = self._loader.wait_seconds
        self._images = 0

    def _read(self, trainer: L.Trainer, module: TrainingModule, *, first: bool, batches_done: int) -> None:
        assert module.step_log is not None
        window = module.step_log.read()
        now = time.perf_counter()
        if first:
            self._timing.first_step_done()
        else:
            assert self._step_start is not None
            self._timing.add_window(
                steps=window.steps,
                images=self._images,
                step_seconds=now - self._step_start,
                seconds=now - self._window_start,
                waited=self._loader.wait_seconds - self._waited,
            )
        if not window.finite:
            raise self._diverged(trainer, module, "loss")
        if not module.gradients_finite():
            raise self._diverged(trainer, module, "gradient")
        self._log(trainer, module, window, seconds=now - self._window_start, batches_done=batches_done)
        self._restart_window()
        self._step_start = now

    def _log(
        self, trainer: L.Trainer, module: TrainingModule, window: StepWindow, *, seconds: float, batches_done: int
    ) -> None:
        values = dict(zip(self._names, window.means, strict=True))
        values["lr"] = module.optimizer.param_groups[0]["lr"]
        values["images_per_second"] = self._images / seconds
        values["data_wait_share"] = (self._loader.wait_seconds - self._waited) / seconds
        if module.device.type == "cuda":
            values["gpu_mib"] = torch.cuda.max_memory_allocated(module.device) / MIB
        self._metrics.write(values, epoch=trainer.current_epoch + 1, step=trainer.global_step)
        row = EpochRow(epoch=trainer.current_epoch, values=values)
        self._progress.update(row, steps=window.steps, batches_done=batches_done)

    def _diverged(self, trainer: L.Trainer, module: TrainingModule, what: str) -> RunError:
        positions = sorted({int(i) for batch in module.recent_images for i in batch if int(i) >= 0})
        paths = [self._index.paths[i] for i in positions]
        listing = self._run_dir.root / "nonfinite_images.txt"
        listing.write_text("\n".join(paths) + "\n", encoding="utf-8")
        shown = ", ".join(Path(p).name for p in paths[:5])
        return RunError(
            f"The {what} became infinite or not a number within the {len(module.recent_images)} steps before step "
            f"{trainer.global_step}. Those updates were skipped, the weights are as before them. "
            f"Images of these steps: {shown}{', ...' if len(paths) > 5 else ''} (all in {listing}). "
            "Check their labels, lower optimizer.lr, or try precision=32-true."
        )


class Validator(L.Callback):
    """Scores the averaged weights every ``val_every`` epochs and after the last one.

    Args:
        score: evaluates the averaged model; returns the metric's columns (``val/...``) with ``primary`` among them.
        metrics: where the scores are logged.
        progress: where they are shown.
        every: epochs between two validations.
    """

    def __init__(
        self,
        *,
        score: Callable[[TrainingModule], dict[str, float]],
        primary: str,
        metrics: MetricsLog,
        progress: Progress,
        every: int,
    ) -> None:
        self._score = score
        self._primary = primary
        self._metrics = metrics
        self._progress = progress
        self._every = every
        self.latest: float | None = None  # of the running epoch

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Validate when it is due."""
        assert isinstance(pl_module, TrainingModule)
        self.latest = None
        if (trainer.current_epoch + 1) % self._every == 0 or is_last_epoch(trainer):
            values = self._score(pl_module)
            self._metrics.write(values, epoch=trainer.current_epoch + 1, step=trainer.global_step)
            self._progress.validated(trainer.current_epoch, values)
            self.latest = values[self._primary]


class Saver(L.Callback):
    """Writes ``last.ckpt`` at the end of epochs, ``best.ckpt`` when the score rose, and both ways out on Ctrl-C.

    An epoch may take less time than its checkpoint. So one that neither was validated nor ends the fit is only written
    when the last writing is some time ago.

    Args:
        run_dir: where the checkpoints go.
        info: description of the model for them.
        validator: who scores; called before.
        stop: whether the user asked to stop.
        patience: validations without a better score after which the fit ends; None: it never does.
        save_seconds: least time from one writing to the next, where nothing else asks for it.
        clock: the time in seconds.

    Attributes:
        best_score: of all validations so far; None before the first one.
        best_epoch: its epoch, from 1.
        since_best: validations since then.
        out_of_patience: whether they ended the fit.
    """

    def __init__(
        self,
        *,
        run_dir: RunDir,
        info: ModelInfo,
        validator: Validator,
        stop: StopSignal,
        patience: int | None,
        save_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run_dir = run_dir
        self._info = info
        self._validator = validator
        self._stop = stop
        self._patience = patience
        self._save_seconds = save_seconds
        self._clock = clock
        self._saved_at: float | None = None  # end of the last writing; None before the first one of this process
        self._position: dict[str, Any] | None = None  # inside an epoch that the loop is about to leave
        self.best_score: float | None = None
        self.best_epoch: int | None = None
        self.since_best = 0
        self.out_of_patience = False

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Answer signals alone: the trainer would leave between two updates, without saving."""
        self._stop.take_back()
        self._lose_patience(trainer)  # a run that goes on may have ended already, all but its report

    def state_dict(self) -> dict[str, Any]:
        """Keep the best score across a resume."""
        return {"best_score": self.best_score, "best_epoch": self.best_epoch, "since_best": self.since_best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the best score so far."""
        self.best_score = state_dict["best_score"]
        self.best_epoch = state_dict["best_epoch"]
        self.since_best = state_dict.get("since_best", 0)  # younger than the others

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Describe the model inside the checkpoint, and keep the place inside an epoch that was cut short.

        The trainer counts such an epoch as done; a resumed run would miss its rest.
        """
        checkpoint[BLOCK] = self._info.as_plain()
        if self._position is not None:
            checkpoint["loops"]["fit_loop"] = self._position

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save when it is due, after the validator ran: it does so in the last epoch too."""
        score = self._validator.latest
        better = score is not None and _is_better(score, self.best_score)
        if better:
            self.best_score, self.best_epoch, self.since_best = score, trainer.current_epoch + 1, 0
        elif score is not None:
            self.since_best += 1
        stopping = self._stop.requested  # read once: a request that comes later waits for its own checkpoint
        if score is not None or stopping or self._time_is_up():
            save_atomically(trainer, self._run_dir.last, also=self._run_dir.best if better else None)
            self._saved_at = self._clock()
        if not is_last_epoch(trainer):
            self._lose_patience(trainer)
        if stopping and not is_last_epoch(trainer):
            raise FitStopped

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        """Save inside an epoch and leave, when the user asked to stop.

        Half-collected gradients are not part of a checkpoint, and an epoch's last step is left to its end.
        """
        inside = leaves_early(trainer) and not trainer.is_last_batch
        self._position = trainer.fit_loop.state_dict() if inside else None
        at_update = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if self._stop.requested and at_update and not trainer.is_last_batch:
            save_atomically(trainer, self._run_dir.last)
            raise FitStopped

    def _time_is_up(self) -> bool:
        return self._saved_at is None or self._clock() - self._saved_at >= self._save_seconds

    def _lose_patience(self, trainer: L.Trainer) -> None:
        if self._patience is not None and self.since_best >= self._patience:
            self.out_of_patience = trainer.should_stop = True


def since_best(checkpoint: dict[str, Any]) -> int:
    """Validations since the best one of a run, from its last checkpoint."""
    return int(checkpoint["callbacks"][Saver.__qualname__].get("since_best", 0))


def _is_better(score: float, best: float | None) -> bool:
    """Whether a score is the best so far; one that is not a number (nothing to score) yields to any number."""
    return best is None or score > best or (math.isnan(best) and not math.isnan(score))


class ClockAfterEpoch(L.Callback):
    """Last in the list: training time goes on when validation and saving are done."""

    def __init__(self, reader: StepReader) -> None:
        self._reader = reader

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the next window."""
        self._reader.resume_clock()
