"""A whole run: its files, its summary, its ways to stop, and that a continued run equals one that was never stopped."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from omegaconf import DictConfig

import lucid_yolo as ly
from lucid_yolo.config.errors import RunError
from lucid_yolo.engine.train import train
from tests.engine.signals import PressCtrlC
from tests.engine.tiny import STEPS_AN_EPOCH, THREE_EPOCHS, learn, read_state, tiny_config

Compose = Callable[..., DictConfig]


class Poison(L.Callback):
    """Makes a layer's weights infinite before a step, as an exploded run would."""

    def __init__(self, before_step: int) -> None:
        self.before_step = before_step

    def on_train_batch_start(self, trainer: L.Trainer, module: Any, *_: Any) -> None:
        if trainer.global_step == self.before_step:
            next(module.model.parameters()).data.fill_(float("inf"))


def assert_equal(first: Any, second: Any, where: str = "") -> None:
    assert type(first) is type(second), where
    if isinstance(first, torch.Tensor):
        assert torch.equal(first, second), where
    elif isinstance(first, dict):
        assert first.keys() == second.keys(), where
        for key, value in first.items():
            assert_equal(value, second[key], f"{where}.{key}")
    elif isinstance(first, (list, tuple)):
        assert len(first) == len(second), where
        for i, (a, b) in enumerate(zip(first, second, strict=True)):
            assert_equal(a, b, f"{where}[{i}]")
    else:
        assert first == second, where


def curve(run_dir: Path) -> list[tuple[str, str]]:
    with (run_dir / "metrics.csv").open() as file:
        return [(row["step"], row["train/total"]) for row in csv.DictReader(file) if row["train/total"]]


def test_run_writes_its_record(uninterrupted: Path) -> None:
    summary = json.loads((uninterrupted / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert set(summary) >= {
        "metrics", "timing", "memory", "plan", "versions", "commit", "device", "command", "status",
    }  # fmt: skip
    assert {"primary", "box_ap", "box_ap50", "box_ap_nms", "box_ap50_nms"} <= set(summary["metrics"])
    assert all(0 <= summary["metrics"][name] <= 1 for name in ("primary", "box_ap", "box_ap50", "box_ap_nms"))
    timing = summary["timing"]
    assert timing["total_seconds"] >= timing["fit_seconds"] > 0
    assert timing["total_seconds"] >= timing["first_step_seconds"] > 0  # it counts from before the fit
    assert timing["step_ms_median"] > 0
    assert 0 <= timing["data_wait_share"] <= 1
    assert summary["memory"]["peak_allocated_mib"] is None  # no CUDA here
    assert summary["memory"]["host_peak_mib"] > 100
    for row in summary["plan"].values():
        assert {"requested", "active", "reason"} <= set(row)
    for name in ("config.yaml", "overrides.yaml", "plan.json", "train.log", "metrics.csv"):
        assert (uninterrupted / name).stat().st_size > 0
    assert (uninterrupted / "checkpoints" / "best.ckpt").exists()
    assert len({step for step, _ in curve(uninterrupted)}) == len(curve(uninterrupted))


@pytest.mark.parametrize(  # without workers at the end of an epoch: with key points, whose state holds more
    ("after_step", "num_workers"),
    [(STEPS_AN_EPOCH, 2), (STEPS_AN_EPOCH + 1, 0), (STEPS_AN_EPOCH + 1, 2)],
    ids=["epoch-end-2", "inside-0", "inside-2"],
)
def test_continued_run_equals_uninterrupted(
    uninterrupted: Path, tiny: Compose, after_step: int, num_workers: int
) -> None:
    workers = f"data.num_workers={num_workers}"
    stopped = learn(tiny(*THREE_EPOCHS, workers), [PressCtrlC(after_step)])
    assert stopped.status == "interrupted"
    assert read_state(stopped.run_dir)["global_step"] == after_step
    said, log = f"Goes on after 1 whole epoch and {after_step} updates.", stopped.run_dir / "train.log"
    assert said not in log.read_text()
    finished = learn(ly.compose([f"resume='{stopped.run_dir}'", workers]))
    assert finished.status == "finished"
    assert said in log.read_text()
    whole, parts = read_state(uninterrupted), read_state(stopped.run_dir)
    assert whole["global_step"] == parts["global_step"] == 3 * STEPS_AN_EPOCH
    assert_equal(whole["state_dict"], parts["state_dict"], "state_dict")
    assert_equal(whole["optimizer_states"], parts["optimizer_states"], "optimizer")
    assert whole["epoch"] == parts["epoch"]
    last_losses = [row for row in curve(uninterrupted) if int(row[0]) > 2 * STEPS_AN_EPOCH]
    assert last_losses == [row for row in curve(stopped.run_dir) if int(row[0]) > 2 * STEPS_AN_EPOCH]


def test_another_seed_is_another_run(uninterrupted: Path, tiny: Compose) -> None:
    other = learn(tiny(*THREE_EPOCHS, "seed=1", "trainer.max_steps=3"))
    assert curve(other.run_dir)[0] != curve(uninterrupted)[0]


def test_diverged_run_names_its_pictures_and_keeps_its_weights(tiny: Compose, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"infinite or not a number.*\.(png|jpg).*lower optimizer\.lr"):
        train(tiny(*THREE_EPOCHS, "cache=decoded"), callbacks=[Poison(before_step=STEPS_AN_EPOCH + 1)])
    assert read_state(tmp_path / "run")["global_step"] == STEPS_AN_EPOCH
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "failed"
    assert summary["plan"]["cache"]["outcome"]["images"] == 10  # what the flags did until then
    assert json.loads((tmp_path / "run" / "plan.json").read_text())["rows"] == summary["plan"]
    assert (tmp_path / "run" / "nonfinite_images.txt").read_text().count("\n") > 0


def test_run_directory_is_never_taken_twice(uninterrupted: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in uninterrupted.rglob("*")}
    with pytest.raises(RunError, match="already holds a run"):
        train(tiny_config(uninterrupted, *THREE_EPOCHS))
    assert before == {path: path.stat().st_mtime_ns for path in uninterrupted.rglob("*")}


def test_foreign_directory_is_refused(tiny: Compose, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(RunError, match="not empty"):
        train(tiny(run="mine"))
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_file_is_no_run_to_resume(uninterrupted: Path) -> None:
    with pytest.raises(RunError, match="that is a file"):
        ly.compose([f"resume='{uninterrupted / 'summary.json'}'"])


def test_finished_run_has_nothing_to_resume(uninterrupted: Path) -> None:
    with pytest.raises(RunError, match="nothing is left to do"):
        train(ly.compose([f"resume='{uninterrupted}'"]))


@pytest.mark.parametrize("less", ["trainer.max_epochs=1", "trainer.max_steps=1"])
def test_an_interrupted_run_that_is_asked_for_less_is_refused_before_anything_is_written(
    uninterrupted: Path, tmp_path: Path, less: str
) -> None:
    run = shutil.copytree(uninterrupted, tmp_path / "run")
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "status": "interrupted"}))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=rf"has trained \d+ whole epochs and \d+ updates already, .*{less}"):
        train(ly.compose([f"resume='{run}'", less]))
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ({"class_names": ["wolf"]}, r"has learned the classes \['wolf'\], .*model\.init_from="),
        ({"num_pictures": 13}, r"has trained on 13 pictures, .* now has 10"),
    ],
)
def test_a_resumed_run_keeps_its_data(uninterrupted: Path, tmp_path: Path, before: dict[str, Any], reason: str) -> None:
    copied = tmp_path / "run"
    shutil.copytree(uninterrupted, copied)
    state = read_state(copied)
    state["lucid_yolo"].update(before)  # as if the data had been another one
    torch.save(state, copied / "checkpoints" / "last.ckpt")
    with pytest.raises(RunError, match=reason):
        train(ly.compose([f"resume='{copied}'", "trainer.max_epochs=9"]))


def test_out_of_memory_is_a_sentence(tiny: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(L.Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    with pytest.raises(RunError, match=r"ran out of memory.*data\.batch_size=2"):
        train(tiny(), callbacks=[Full()])
