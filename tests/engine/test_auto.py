"""``capture=auto``: what is timed, what is taken over from it, and what is remembered."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import lucid_yolo as ly
from lucid_yolo.config.compose import to_root
from lucid_yolo.config.schema import RootConfig
from lucid_yolo.engine import auto
from lucid_yolo.engine.console import RunConsole
from lucid_yolo.engine.prepare import Prepared, prepare
from lucid_yolo.perf.plan import resolve
from lucid_yolo.perf.trial import Trial
from tests.engine.tiny import tiny_config, tiny_overrides
from tests.perf.machines import CUDA

FOUND = (
    Trial(option="none", step_ms=80.0),
    Trial(option="network+loss+gradient_norm+orthogonalization+updates", step_ms=40.0, setup_seconds=0.01),
    Trial(option="step", step_ms=10.0, setup_seconds=0.02, reserved_mib=900.0),
)


class Measure:
    """Stands in for the child process, and counts."""

    def __init__(self, trials: Sequence[Trial] = FOUND) -> None:
        self.asked: list[tuple[str, ...]] = []
        self._trials = trials

    def __call__(self, root: RootConfig, options: Sequence[str]) -> Sequence[Trial]:
        self.asked.append(tuple(options))
        return self._trials


def on_cuda(*overrides: str) -> Prepared:
    """A run that was prepared on this machine, with the plan of one with CUDA."""
    root = to_root(tiny_config(Path("run"), "capture=auto", "precision=32-true", *overrides))
    prepared = prepare(root)
    root.trainer.accelerator = "auto"
    return replace(prepared, plan=resolve(root, CUDA, None))


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where trials are remembered."""
    monkeypatch.setattr(auto, "cache_directory", lambda: tmp_path)
    return tmp_path / "auto"


def test_the_pick_is_resolved_and_the_plan_tells_of_the_trial() -> None:
    prepared, measure = on_cuda(), Measure()
    assert prepared.plan["capture.auto"].reason.startswith("not measured yet")
    settled = auto.settle(prepared, RunConsole(), measure)
    assert measure.asked == [tuple(trial.option for trial in FOUND)]
    row = settled.plan["capture.auto"]
    assert (row.requested, row.active, row.outcome["picked"]) == (True, True, "step")
    assert row.reason.startswith("picked step: 10.0 ms a step instead of 80.0")
    assert (settled.plan["capture.step"].requested, settled.plan["capture.step"].active) == (True, True)
    assert settled.config.capture.step.selected
    assert not settled.config.capture.auto.selected
    others = [row for row in settled.plan.rows if not row.key.startswith("capture.")]
    assert others == [row for row in prepared.plan.rows if not row.key.startswith("capture.")]


def test_a_run_without_it_is_left_alone() -> None:
    prepared = prepare(to_root(tiny_config(Path("run"))))
    assert auto.settle(prepared, RunConsole(), Measure()) is prepared


def test_the_same_workload_is_measured_once_and_another_one_again(memory: Path) -> None:
    measure = Measure()
    first = auto.settle(on_cuda(), RunConsole(), measure)
    again = auto.settle(
        on_cuda("trainer.max_epochs=50"), RunConsole(), measure
    )  # the length of the run is no part of it
    assert len(measure.asked) == 1
    assert again.plan["capture.auto"].reason.endswith("(remembered from an earlier run)")
    assert again.plan["capture.auto"].outcome == {"picked": "step", "seconds": 0.0}
    assert first.plan["capture.auto"].outcome["seconds"] >= 0
    auto.settle(on_cuda("data.batch_size=2"), RunConsole(), measure)
    auto.settle(on_cuda("capture.auto.again=true"), RunConsole(), measure)
    assert len(measure.asked) == 3
    for file in memory.glob("*.json"):
        file.write_text("{damaged")
    auto.settle(on_cuda(), RunConsole(), measure)
    assert len(measure.asked) == 4


def test_the_plan_shows_what_a_run_would_remember_and_measures_nothing(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lucid_yolo.engine.plan.prepare", lambda _root: on_cuda())
    config = tiny_config(Path("run"), "capture=auto")
    assert ly.plan(config).plan["capture.auto"].reason.startswith("not measured yet")
    assert not memory.exists()
    ran = auto.settle(on_cuda(), RunConsole(), Measure()).plan
    before = {file: file.read_bytes() for file in memory.iterdir()}
    planned = ly.plan(config).plan
    assert planned["capture.auto"].reason == (
        "picked step: 10.0 ms a step instead of 80.0, which saves 86 % of the 16 steps of this run, set-up included "
        "(remembered from an earlier run)"
    )
    assert [(row.key, row.active) for row in planned.rows] == [(row.key, row.active) for row in ran.rows]
    assert not any(row.outcome for row in planned.rows)
    assert {file: file.read_bytes() for file in memory.iterdir()} == before
    again = on_cuda("capture.auto.again=true")
    assert auto.foretell(again) is again.plan


def test_a_trial_without_an_eager_step_picks_nothing_and_is_not_remembered() -> None:
    measure = Measure([Trial(option="none", error="no time was left"), Trial(option="step", error="no time was left")])
    for _ in range(2):
        settled = auto.settle(on_cuda(), RunConsole(), measure)
        assert not any(row.active for row in settled.plan.rows if row.key == "capture.step")
        assert "could not be timed (no time was left)" in settled.plan["capture.auto"].reason
    assert len(measure.asked) == 2


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["task=segment"], ("none", "network+heads+loss+gradient_norm+orthogonalization+updates", "step")),
        (["optimizer=sgd"], ("none", "network+loss+gradient_norm", "step")),
        (["compile=step"], ("none", "gradient_norm+orthogonalization+updates", "step")),
        (["trainer.accumulate=2", "trainer.clip_norm=null"], ("none", "network+loss+orthogonalization+updates")),
    ],
)
def test_only_what_can_be_had_is_timed(overrides: list[str], expected: tuple[str, ...]) -> None:
    root = to_root(ly.compose(tiny_overrides("capture=auto", "trainer.accelerator=auto", *overrides)))
    assert auto.candidates(root, resolve(root, CUDA, None)) == expected


def test_a_child_times_the_run_itself() -> None:
    """On a processor nothing is recorded: the eager step is timed, and the others say why they are not."""
    root = to_root(ly.compose(tiny_overrides("capture=auto", "capture.auto.steps=3", "data.augment.mosaic=0")))
    none, step = auto.measure_in_child(root, ("none", "step"))
    assert none.error == ""
    assert none.step_ms is not None
    assert 0 <= none.wait_ms < none.step_ms
    assert "records a CUDA graph, this run computes on cpu" in step.error


def test_a_trial_that_takes_too_long_or_fails_says_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert auto._run([sys.executable, "-c", "import time; time.sleep(60)"], log, timeout=0.5).startswith("no time was")
    said = auto._run([sys.executable, "-c", "import sys; print('no space left'); sys.exit(3)"], log, timeout=60)
    assert said == "the trial ended with code 3: no space left"
