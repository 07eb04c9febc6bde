"""Early stopping: a sequence of scores made by hand, and when the fit ends for it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

import lucid_yolo as ly
from lucid_yolo.config.errors import ConfigError, RunError
from lucid_yolo.engine import fit
from lucid_yolo.engine import train as verb
from tests.engine.signals import PressCtrlC
from tests.engine.tiny import learn, resumed

Compose = Callable[..., DictConfig]
STEPS_AN_EPOCH = 1
RUN = ("data.options.num_train=4", "trainer.max_epochs=7", "trainer.val_every=1")
# By epoch, with patience 2: epoch 2 is the best, 3 is worse, 4 is equal, which is not better: the fit ends there.
SCORES = (0.1, 0.3, 0.2, 0.3, 0.4, 0.5, 0.45)


@pytest.fixture
def scores(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Scores that the validations of a fit give, in order; those that were asked for are gone."""
    left = list(SCORES)

    def score(*_: Any, **__: Any) -> dict[str, float]:
        value = left.pop(0)
        return {"box_ap": value, "box_ap50": value}

    monkeypatch.setattr(fit, "score", score)
    return left


def steps(run_dir: Path, name: str) -> int:
    return int(torch.load(run_dir / "checkpoints" / f"{name}.ckpt", weights_only=True)["global_step"])


def summary(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "summary.json").read_text())


def rates(run_dir: Path) -> dict[str, str]:
    """Learning rate by step."""
    with (run_dir / "metrics.csv").open() as file:
        return {row["step"]: row["lr"] for row in csv.DictReader(file) if row["lr"]}


def test_the_fit_ends_when_patience_does_and_the_schedule_is_that_of_the_whole(
    tiny: Compose, scores: list[float]
) -> None:
    run_dir = ly.train(tiny(*RUN, "trainer.patience=2")).run_dir
    assert scores == list(SCORES[4:])
    assert (steps(run_dir, "last"), steps(run_dir, "best")) == (4 * STEPS_AN_EPOCH, 2 * STEPS_AN_EPOCH)
    found = summary(run_dir)
    assert (found["status"], found["best_epoch"], found["out_of_patience"]) == ("finished", 2, True)
    assert found["metrics"]["primary"] is not None
    sentence = "2 validations in a row (trainer.patience=2) brought no better box_ap than 0.300 of epoch 2."
    assert sentence in " ".join((run_dir / "train.log").read_text().split())
    scores[:] = SCORES
    whole = learn(tiny(*RUN, run="whole")).run_dir
    assert scores == []
    assert (summary(whole)["best_epoch"], summary(whole)["out_of_patience"]) == (6, False)
    ended = rates(run_dir)
    assert ended == {step: rate for step, rate in rates(whole).items() if step in ended}


def test_the_count_survives_a_resume(tiny: Compose, scores: list[float]) -> None:
    stopped = learn(tiny(*RUN, "trainer.patience=2"), [PressCtrlC(3 * STEPS_AN_EPOCH)])
    run_dir = stopped.run_dir
    assert (stopped.status, scores) == ("interrupted", list(SCORES[3:]))
    assert learn(resumed(run_dir)).status == "finished"
    assert (steps(run_dir, "last"), scores) == (4 * STEPS_AN_EPOCH, list(SCORES[4:]))
    with pytest.raises(RunError, match=r"last 2 validations .* no better score, with trainer\.patience=2 nothing is"):
        ly.train(resumed(run_dir))
    learn(resumed(run_dir, patience=3))
    assert steps(run_dir, "last") == 7 * STEPS_AN_EPOCH  # 0.4 came in time
    assert (summary(run_dir)["best_epoch"], summary(run_dir)["out_of_patience"]) == (6, False)


def test_a_run_that_ended_all_but_its_report_trains_no_further(
    tiny: Compose, scores: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def press_ctrl_c(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(verb, "final_report", press_ctrl_c)
        run_dir = ly.train(tiny(*RUN, "trainer.patience=2")).run_dir
    assert summary(run_dir)["status"] == "interrupted"
    assert ly.train(resumed(run_dir)).status == "finished"
    assert (steps(run_dir, "last"), scores) == (4 * STEPS_AN_EPOCH, list(SCORES[4:]))
    assert summary(run_dir)["out_of_patience"]


def test_patience_is_a_count() -> None:
    with pytest.raises(ConfigError, match=r"trainer\.patience.*at least 1"):
        ly.compose(["trainer.patience=0"])
