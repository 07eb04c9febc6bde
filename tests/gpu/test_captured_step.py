"""The whole step as one CUDA graph, in whole runs of every task."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

import lucid_yolo as ly
from lucid_yolo.engine.train import train
from tests.gpu.conftest import Compose
from tests.gpu.test_capture import assert_same_run
from tests.gpu.watch import ForbidSynchronisation

pytestmark = pytest.mark.gpu


def row(result: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((result.run_dir / "summary.json").read_text())["plan"]["capture.step"]
    return found


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("task", ["detect", "segment", "keypoints", "obb"])
def test_a_run_equals_the_eager_one_bit_for_bit(small: Compose, task: str, precision: str) -> None:
    settings = (f"task={task}", f"precision={precision}")
    eager = train(small(*settings, run="eager"))
    recorded = train(small(*settings, "capture=step", "on_unmet=raise", run="recorded"))
    assert_same_run(recorded, eager)
    assert recorded.metrics == eager.metrics
    found = row(recorded)
    assert found["active"] is True
    assert found["outcome"]["replayed_share"] >= 0.99
    assert "retired" not in found["outcome"]


@pytest.mark.parametrize(
    "setting",
    ["optimizer=sgd", "optimizer=adamw", "hsv=device", "hsv=device_native", "task=segment capture.step.streams=12"],
)
def test_it_equals_the_eager_run_with_other_options(small: Compose, setting: str) -> None:
    settings = setting.split()
    eager = train(small(*settings, run="eager"))
    recorded = train(small(*settings, "capture=step", "on_unmet=raise", run="recorded"))
    assert_same_run(recorded, eager)
    assert row(recorded)["outcome"]["replayed_share"] == 1.0


def test_what_a_trial_picks_changes_no_number(small: Compose) -> None:
    eager = train(small(run="eager"))
    picked = train(small("capture=auto", "capture.auto.steps=12", run="picked"))
    assert_same_run(picked, eager)
    found = json.loads((picked.run_dir / "summary.json").read_text())["plan"]["capture.auto"]
    assert found["outcome"]["picked"] in found["reason"]
    assert found["outcome"]["seconds"] > 0
    again = train(small("capture=auto", "capture.auto.steps=12", run="again"))
    assert again.plan["capture.auto"].reason.endswith("(remembered from an earlier run)")
    assert_same_run(again, eager)


@pytest.mark.parametrize("option", ["compile=loss", "compile=step"])
def test_it_records_what_was_compiled(small: Compose, option: str) -> None:
    one_epoch = ("trainer.max_epochs=1", option)
    compiled = train(small(*one_epoch, run="compiled"))
    recorded = train(small(*one_epoch, "capture=step", "on_unmet=raise", run="recorded"))
    assert_same_run(recorded, compiled)
    assert row(recorded)["outcome"]["replays"] == 10


def test_an_interrupted_and_resumed_run_equals_the_eager_one(small: Compose, tmp_path: Path) -> None:
    class Stop(L.Callback):
        def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
            if trainer.global_step == 14:
                raise KeyboardInterrupt

    eager = train(small(run="eager"))
    train(small("capture=step", run="recorded"), callbacks=[Stop()])
    resumed = train(ly.compose([f"resume={tmp_path / 'recorded'}"]))
    assert resumed.status == "finished"
    assert_same_run(resumed, eager)


def test_a_replayed_step_never_waits_for_the_device(small: Compose) -> None:
    watch = ForbidSynchronisation()
    try:
        train(small("capture=step"), callbacks=[watch])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert watch.steps == 28


def test_two_fits_in_one_process_leave_nothing_behind(small: Compose) -> None:
    first = train(small("capture=step", run="first"))
    gc.collect()
    left = torch.cuda.memory_allocated()
    second = train(small("capture=step", run="second"))
    gc.collect()
    assert_same_run(second, first)
    assert torch.cuda.memory_allocated() <= left + 2**20
