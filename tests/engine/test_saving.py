"""When last.ckpt is written: a clock set by hand, and a fit whose epochs end before time is up."""

from __future__ import annotations

import csv
import errno
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from omegaconf import DictConfig

import lucid_yolo as ly
from lucid_yolo.config.errors import ConfigError, RunError
from lucid_yolo.engine.callbacks import Saver
from lucid_yolo.engine.interrupt import FitStopped, StopSignal
from lucid_yolo.engine.run_dir import claim
from tests.engine.signals import PressCtrlC
from tests.engine.tiny import STEPS_AN_EPOCH, THREE_EPOCHS, learn, read_state, resumed

Compose = Callable[..., DictConfig]
LONG = "trainer.save_seconds=1e9"


class Fit:
    """The end of epochs as a saver sees it; the checkpoint's text is the number of the epoch."""

    def __init__(self, root: Path, *, save_seconds: float) -> None:
        self.now = 1000.0
        self.epoch = 0
        self.validator: Any = SimpleNamespace(latest=None)
        self.stop = StopSignal()
        self.run_dir = claim(root)
        self.saver = Saver(
            run_dir=self.run_dir,
            info=None,  # type: ignore[arg-type] - nothing is described
            validator=self.validator,
            stop=self.stop,
            patience=None,
            save_seconds=save_seconds,
            clock=lambda: self.now,
        )

    def save_checkpoint(self, path: Path, *, weights_only: bool) -> None:
        path.write_text(str(self.epoch))
        self.now += 100.0  # the disk is slow

    def end_epoch(self, *, seconds: float, score: float | None = None) -> int:
        """Let an epoch end so many seconds after the last one; returns the epoch of last.ckpt, from 1."""
        self.epoch += 1
        self.now += seconds
        self.validator.latest = score
        trainer: Any = SimpleNamespace(
            current_epoch=self.epoch - 1,
            max_epochs=99,
            max_steps=-1,
            global_step=self.epoch,
            should_stop=False,
            save_checkpoint=self.save_checkpoint,
        )
        self.saver.on_train_epoch_end(trainer, None)  # type: ignore[arg-type]
        return int(self.run_dir.last.read_text())


def test_an_epoch_is_saved_when_the_last_writing_is_long_enough_ago(tmp_path: Path) -> None:
    fit = Fit(tmp_path / "run", save_seconds=10.0)
    assert [fit.end_epoch(seconds=seconds) for seconds in (1, 6, 3, 1, 9.5, 0.5)] == [1, 1, 1, 4, 4, 6]


def test_no_seconds_save_each_epoch(tmp_path: Path) -> None:
    fit = Fit(tmp_path / "run", save_seconds=0.0)
    assert [fit.end_epoch(seconds=0.0) for _ in range(3)] == [1, 2, 3]


def test_a_validated_epoch_is_saved_and_time_counts_from_there(tmp_path: Path) -> None:
    fit = Fit(tmp_path / "run", save_seconds=10.0)
    scores = (0.1, None, 0.3, None, 0.2, None)
    assert [fit.end_epoch(seconds=6.0, score=score) for score in scores] == [1, 1, 3, 3, 5, 5]
    assert fit.run_dir.best.read_text() == "3"


def test_a_request_to_stop_is_saved(tmp_path: Path) -> None:
    fit = Fit(tmp_path / "run", save_seconds=10.0)
    assert [fit.end_epoch(seconds=1.0) for _ in range(2)] == [1, 1]
    fit.stop.requested = True
    with pytest.raises(FitStopped):
        fit.end_epoch(seconds=1.0)
    assert fit.run_dir.last.read_text() == "3"


def test_whoever_dies_between_the_two_names_has_the_better_one_and_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = Fit(tmp_path / "run", save_seconds=10.0)
    fit.end_epoch(seconds=1.0, score=0.1)
    rename = os.replace

    def die(source: Path, target: Path) -> None:
        if Path(target) == fit.run_dir.last:
            raise SystemExit
        rename(source, target)

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(SystemExit):
        fit.end_epoch(seconds=1.0, score=0.5)
    # Resumed from epoch 1, whose best score is 0.1, epoch 2 comes again and is the best again.
    assert (fit.run_dir.last.read_text(), fit.run_dir.best.read_text()) == ("1", "2")
    assert not list(fit.run_dir.last.parent.glob("*.partial"))


def test_a_disk_without_room_for_the_second_name_leaves_both_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = Fit(tmp_path / "run", save_seconds=10.0)
    fit.end_epoch(seconds=1.0, score=0.1)

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(OSError, match="No space left"):
        fit.end_epoch(seconds=1.0, score=0.5)
    assert (fit.run_dir.last.read_text(), fit.run_dir.best.read_text()) == ("1", "1")
    assert not list(fit.run_dir.last.parent.glob("*.partial"))


def test_scores_that_are_not_numbers_are_no_better_than_each_other(tmp_path: Path) -> None:
    fit = Fit(tmp_path / "run", save_seconds=10.0)
    best = []
    for score in (math.nan, math.nan, 0.0, math.nan, 0.2):
        fit.end_epoch(seconds=1.0, score=score)
        best.append((fit.run_dir.best.read_text(), fit.saver.since_best))
    assert best == [("1", 0), ("1", 1), ("3", 0), ("3", 1), ("5", 0)]


class NoteSaves(L.Callback):
    """Notes the epoch, from 1, of each checkpoint."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def on_save_checkpoint(self, trainer: L.Trainer, module: Any, checkpoint: dict[str, Any]) -> None:
        self.epochs.append(trainer.current_epoch + 1)


def logged_steps(run_dir: Path) -> list[int]:
    """Steps of the rows with losses."""
    with (run_dir / "metrics.csv").open() as file:
        return [int(row["step"]) for row in csv.DictReader(file) if row["lr"]]


@pytest.mark.parametrize(
    ("settings", "epochs"),
    [
        ((LONG,), [1, 4]),
        ((LONG, "trainer.val_every=2", "trainer.max_steps=5"), [1, 2, 3]),  # of 2 steps each
        (("trainer.save_seconds=0",), [1, 2, 3, 4]),
    ],
)
def test_a_fit_saves_its_first_its_validated_and_its_last_epoch(
    tiny: Compose, settings: tuple[str, ...], epochs: list[int]
) -> None:
    notes = NoteSaves()
    assert learn(tiny("data.options.num_train=6", *settings), [notes]).status == "finished"
    assert notes.epochs == epochs


def test_a_run_killed_between_two_writings_makes_the_lost_epoch_again(uninterrupted: Path, tiny: Compose) -> None:
    class Die(L.Callback):
        def on_train_epoch_start(self, trainer: L.Trainer, module: Any) -> None:
            if trainer.current_epoch == 2:
                raise SystemExit

    killed = learn(tiny(*THREE_EPOCHS, LONG), [Die()]).run_dir
    assert read_state(killed)["global_step"] == STEPS_AN_EPOCH  # epoch 2 is lost
    assert logged_steps(killed)[-1] == 2 * STEPS_AN_EPOCH
    assert learn(resumed(killed)).status == "finished"
    expected, found = read_state(uninterrupted), read_state(killed)
    assert all(torch.equal(value, found["state_dict"][key]) for key, value in expected["state_dict"].items())
    steps = logged_steps(killed)
    assert steps == sorted(set(steps))  # none stands there twice
    assert steps[-1] == 3 * STEPS_AN_EPOCH


def test_ctrl_c_saves_before_time_is_up(tiny: Compose) -> None:
    at_an_end = 2 * STEPS_AN_EPOCH
    stopped = learn(tiny(*THREE_EPOCHS, LONG), [PressCtrlC(at_an_end)])
    assert (stopped.status, read_state(stopped.run_dir)["global_step"]) == ("interrupted", at_an_end)


def test_seconds_are_not_negative() -> None:
    with pytest.raises(ConfigError, match=r"trainer\.save_seconds.*at least 0"):
        ly.compose(["trainer.save_seconds=-1"])


def test_a_run_of_an_older_format_is_refused_and_left_as_it_is(uninterrupted: Path, tmp_path: Path) -> None:
    run_dir = shutil.copytree(uninterrupted, tmp_path / "run")
    content = read_state(run_dir)
    content["lucid_yolo"]["format"] = 1
    torch.save(content, run_dir / "checkpoints" / "last.ckpt")
    before = {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=r"last\.ckpt has format 1, and this version reads format 2"):
        ly.train(resumed(run_dir, max_epochs=9))
    assert {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()} == before
