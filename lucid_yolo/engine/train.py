"""The verb ``train``: plan, claim, fit, report."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import lightning as L
from omegaconf import DictConfig, OmegaConf

from lucid_yolo.bench import record
from lucid_yolo.config.compose import to_root
from lucid_yolo.config.errors import LucidError, RunError
from lucid_yolo.config.paths import resolve_user_path
from lucid_yolo.config.schema import RootConfig
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.readers.problems import counted
from lucid_yolo.engine import report
from lucid_yolo.engine.auto import settle
from lucid_yolo.engine.callbacks import since_best
from lucid_yolo.engine.checkpoint import BLOCK, ModelInfo, read_checkpoint
from lucid_yolo.engine.console import RunConsole
from lucid_yolo.engine.final import final_report, no_metrics
from lucid_yolo.engine.fit import run_fit
from lucid_yolo.engine.pictures import PictureWriter
from lucid_yolo.engine.prepare import Prepared, prepare
from lucid_yolo.engine.run_dir import RunDir, claim, explain_unwritable, hold, reopen, write_text
from lucid_yolo.engine.timing import Beginning, FitTiming
from lucid_yolo.perf.plan import RunPlan
from lucid_yolo.perf.waiting import advise_on_waiting


def train(
    config: RootConfig | DictConfig,
    *,
    callbacks: Sequence[L.Callback] = (),
    began: Beginning | None = None,
) -> report.TrainResult:
    """Train a model.

    Args:
        config: the run.
        callbacks: further Lightning callbacks, called before the project's own.
        began: when the run began; now unless given.

    Returns:
        the result; ``status`` is "interrupted" after Ctrl-C.

    Raises:
        ConfigError: the configuration is refused.
        DataError: the data cannot be used.
        RunError: the run cannot start, or diverged, or ran out of memory.
    """
    began = began or Beginning.now()
    timing = FitTiming(started=began.work)
    root = to_root(config)
    prepared = prepare(root)
    run_dir, place = _open_run_dir(root, prepared.splits.train)
    with hold(run_dir), explain_unwritable(run_dir), RunConsole(run_dir.log) as console:
        _record_start(run_dir, prepared.config)
        summary = _Summary(run_dir, prepared)
        summary.write(status="running")
        pictures = PictureWriter()
        try:
            console.print(prepared.plan.render())
            prepared.plan.warn()
            for sentence in filter(None, (place, prepared.workers.note, prepared.workers.warning)):
                console.print(sentence)
            prepared = settle(prepared, console)
            summary.happened(prepared.plan)
            outcome = run_fit(prepared, run_dir, console, timing, pictures, callbacks, told=summary.happened)
            status, metrics = outcome.status, no_metrics(prepared.task)
            if status == "finished":
                try:
                    metrics = final_report(prepared, run_dir, console, pictures)
                except KeyboardInterrupt:
                    status = "interrupted"  # continuing scores the best checkpoint
        except BaseException as error:
            with suppress(OSError):  # the disk may be full; what happened first is what matters
                _record_failure(summary, console, error)
            raise
        finally:
            problems = pictures.finish()
        for problem in problems:
            console.print(problem)
        result = report.TrainResult(
            status=status,
            run_dir=run_dir.root,
            checkpoint=run_dir.best if run_dir.best.exists() else None,
            metrics=metrics,
            plan=outcome.plan,
            timing=report.timing_values(
                timing, total_seconds=time.perf_counter() - began.process, fit_seconds=outcome.seconds
            ),
            memory=report.memory_values(prepared.device),
            model={"parameters": outcome.parameters, "flops": outcome.flops},
        )
        summary.write_result(result, best_epoch=outcome.best_epoch, out_of_patience=outcome.out_of_patience)
        advice = advise_on_waiting(
            timing.data_wait_share, outcome.plan, workers=prepared.workers.count, epochs=root.trainer.max_epochs
        )
        if advice is not None:
            console.print(advice)
        console.print(_closing_words(result, run_dir, saved=outcome.saved))
    return result


def _open_run_dir(root: RootConfig, train: SplitIndex) -> tuple[RunDir, str]:
    """The run's directory, and a sentence that says where a resumed run goes on."""
    if root.resume is None:
        return claim(resolve_user_path(root.run_dir)), ""
    run_dir = reopen(resolve_user_path(root.resume))
    state = read_checkpoint(run_dir.last)
    _check_labels(run_dir, ModelInfo.from_plain(state[BLOCK]), train)
    epochs = state["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]
    updates: int = state["global_step"]
    most_epochs, most_updates = root.trainer.max_epochs, root.trainer.max_steps
    trained = f"{counted(epochs, 'whole epoch')} and {counted(updates, 'update')}"
    place = f"Goes on after {trained}."
    if epochs > most_epochs or (most_updates is not None and updates > most_updates):
        raise RunError(
            f"resume={run_dir.root}: that run has trained {trained} already, more than trainer.max_epochs={most_epochs}"
            f"{f' and trainer.max_steps={most_updates}' if most_updates is not None else ''} allow. Raise what is "
            "exceeded, or use its checkpoint as it is."
        )
    if not _is_finished(run_dir):  # perhaps all but the last report is there
        return run_dir, place
    if epochs >= most_epochs:
        raise RunError(
            f"resume={run_dir.root}: that run has trained its {counted(epochs, 'epoch')}, nothing is left to do. "
            "Raise trainer.max_epochs to go on."
        )
    if most_updates is not None and updates >= most_updates:
        raise RunError(
            f"resume={run_dir.root}: that run has made its {counted(updates, 'update')}, nothing is left to do. "
            "Raise trainer.max_steps (or null) to go on."
        )
    if root.trainer.patience is not None and since_best(state) >= root.trainer.patience:
        raise RunError(
            f"resume={run_dir.root}: the last {since_best(state)} validations of that run brought no better score, "
            f"with trainer.patience={root.trainer.patience} nothing is left to do. Raise it (or null) to go on."
        )
    return run_dir, place


def _check_labels(run_dir: RunDir, info: ModelInfo, train: SplitIndex) -> None:
    """A network goes on with the classes and the key points that it was made for, and with the order of its samples."""
    learned, found = (() if spec is None else spec.names for spec in (info.spec.keypoints, train.keypoints))
    for what, before, now in (
        ("classes", info.class_names, train.class_names),
        ("key points", learned, found),
    ):
        if before != now:
            raise RunError(
                f"resume={run_dir.root}: that run has learned the {what} {list(before)}, and {train.source} now has "
                f"{list(now)}. Restore them, or start a new run with model.init_from={run_dir.root}."
            )
    if info.num_pictures not in (None, len(train)):
        raise RunError(
            f"resume={run_dir.root}: that run has trained on {info.num_pictures} pictures, and {train.source} now has "
            f"{len(train)}: the order of samples would be another one. Restore them, or start a new run with "
            f"model.init_from={run_dir.root}."
        )


def _is_finished(run_dir: RunDir) -> bool:
    return bool(_recorded(run_dir, "status") == "finished")


def _recorded(run_dir: RunDir, key: str) -> Any:
    """A value of the summary that an earlier part of the run wrote; None where there is none."""
    try:
        return json.loads(run_dir.summary.read_text(encoding="utf-8"))[key]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _initial_weights(run_dir: RunDir, prepared: Prepared) -> Any:
    """What the run started from; a resumed run did so in its first part."""
    if prepared.config.resume is not None:
        return _recorded(run_dir, "initial_weights")
    return prepared.initial.as_dict() if prepared.initial is not None else None


def _record_start(run_dir: RunDir, root: RootConfig) -> None:
    write_text(run_dir.config, OmegaConf.to_yaml(OmegaConf.structured(root)))
    write_text(run_dir.overrides, OmegaConf.to_yaml(OmegaConf.create(list(root.overrides))))


class _Summary:
    """Writes summary.json and plan.json: at the start, and with what is known at the end."""

    def __init__(self, run_dir: RunDir, prepared: Prepared) -> None:
        self._run_dir = run_dir
        self._plan = prepared.plan
        self._values: dict[str, Any] = {
            "status": "running",
            "error": None,
            "metrics": no_metrics(prepared.task),
            "timing": dict.fromkeys(report.TIMING_KEYS),
            "memory": dict.fromkeys(report.MEMORY_KEYS),
            "model": None,
            "best_epoch": None,
            "out_of_patience": False,
            "initial_weights": _initial_weights(run_dir, prepared),
            "data": {
                "train_images": len(prepared.splits.train),
                "val_images": len(prepared.splits.val),
                "batch_size": prepared.config.data.batch_size,
                "image_size": prepared.config.data.image_size,
            },
            **record.environment(prepared.device),
            "command": shlex.join(sys.argv),
            "seed": prepared.config.seed,
            "run_dir": str(run_dir.root),
        }

    def happened(self, plan: RunPlan) -> None:
        """Keep for the end what was active and what happened; a fit that fails has that too."""
        self._plan = plan

    def write(self, *, status: str, error: str | None = None) -> None:
        """Write the state of a run without a result, and its plan as far as it is known."""
        self._values |= {"status": status, "error": error, "plan": self._plan.as_dict()}
        record.write_record(self._run_dir.summary, self._values)
        write_text(self._run_dir.plan, self._plan.to_json())

    def write_result(self, result: report.TrainResult, *, best_epoch: int | None, out_of_patience: bool) -> None:
        """Write a finished or interrupted run."""
        self._values |= {
            "metrics": dict(result.metrics),
            "timing": dict(result.timing),
            "memory": dict(result.memory),
            "model": dict(result.model),
            "best_epoch": best_epoch,
            "out_of_patience": out_of_patience,
        }
        self.write(status=result.status)


def _record_failure(summary: _Summary, console: RunConsole, error: BaseException) -> None:
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, KeyboardInterrupt):
        summary.write(status="interrupted")
        return
    summary.write(status="failed", error=reason)
    if not isinstance(error, LucidError):
        console.log(f"failed: {reason}")


def _closing_words(result: report.TrainResult, run_dir: RunDir, *, saved: bool) -> str:
    resume = f"lucid-yolo train resume={shlex.quote(str(result.run_dir))}"
    if result.status == "interrupted":
        if saved:
            return f"Stopped on request; the state is saved. Go on with: {resume}"
        if run_dir.last.exists():
            return f"Stopped at once. Go on from the state that was saved last with: {resume}"
        return "Stopped at once, before anything was saved. Start again with another run_dir."
    lines = [f"Everything about this run: {result.run_dir}"]
    if result.checkpoint is not None:
        lines.append(
            f"Try it: lucid-yolo predict checkpoint={shlex.quote(str(result.checkpoint))} source=PICTURE_OR_FOLDER"
        )
    return "\n".join(lines)
