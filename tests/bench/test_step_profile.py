"""Profiles of a step: the arithmetic by hand, and one of a real training on a processor."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import torch

import lucid_yolo as ly
from lucid_yolo import cli
from lucid_yolo.bench.step import LaunchCounter
from lucid_yolo.bench.step_profile import LOOP, PARTS, StepProfile, covered
from lucid_yolo.config.compose import to_root
from lucid_yolo.config.errors import RunError
from lucid_yolo.config.tasks import TaskName
from lucid_yolo.engine.profile import StepClock
from lucid_yolo.engine.short_fit import shortened
from tests.engine.tiny import tiny_overrides


def make_profile() -> StepProfile:
    return StepProfile(
        steps=4,
        step_ms=50.0,
        wait_ms=5.0,
        host_ms={"forward": 28.0, "clip": 2.0, "optimizer": 10.0},
        synchronised_ms={"forward": 33.0, "clip": 2.5, "optimizer": 12.0},
        optimizer_host_ms={"updates": 3.0, "orthogonalization": 6.0},
        optimizer_synchronised_ms={"updates": 3.5, "orthogonalization": 8.25},
        forward_host_ms={"network": 16.0, "heads": 12.0},
        forward_synchronised_ms={"network": 18.0, "heads": 15.5},
        clip_host_ms={"gradient_norm": 1.0},
        clip_synchronised_ms={"gradient_norm": 1.25},
        device_busy_ms=20.0,
        launches=1234.5,
        synchronisations={"cudaStreamSynchronize": 0.2},
        flags={"precision": "32-true"},
        data={"batch_size": 4, "image_size": 64, "train_images": 8},
        environment={"device": "a card", "driver": "1.2", "versions": {"torch": "9.9"}, "commit": "abc", "cores": 2},
    )


@pytest.mark.parametrize(
    ("intervals", "length"),
    [([], 0.0), ([(1.0, 3.0)], 2.0), ([(4.0, 6.0), (1.0, 3.0), (2.0, 5.0)], 5.0), ([(0.0, 9.0), (2.0, 3.0)], 9.0)],
)
def test_what_overlaps_counts_once(intervals: list[tuple[float, float]], length: float) -> None:
    assert covered(intervals) == length


def test_shares_by_hand() -> None:
    profile = make_profile()
    values = json.loads(json.dumps(profile.as_dict()))
    assert values["shares"] == {
        "wait_share": 0.1,
        "device_busy_share": 0.4,
        "host_share": {"forward": 0.7, "clip": 0.05, "optimizer": 0.25},
        "optimizer_host_share": {"updates": 0.075, "orthogonalization": 0.15},  # 3 and 6 of 40 ms
        "forward_host_share": {"network": 0.4, "heads": 0.3},
        "clip_host_share": {"gradient_norm": 0.025},
    }
    assert StepProfile.from_dict(values) == profile
    page = profile._repr_html_()
    for text in (
        "One step: 50.0 ms",
        "70.0 %",
        "40.0 % of the step",
        "cudaStreamSynchronize 0.20",
        "10.0 % of the step",
    ):
        assert text in page


def test_parts_of_forward_pass_and_optimizer_are_indented_below_them() -> None:
    names = ("forward", "network", "heads", "clip", "gradient_norm", "optimizer", "updates", "orthogonalization")
    rows = [line for line in str(make_profile()).splitlines() if any(name in line for name in names)]
    # a border and a space, then the name; its times stand in its row
    assert [line[2:].split()[0] for line in rows] == list(names)
    assert [len(line[2:]) - len(line[2:].lstrip()) for line in rows] == [0, 2, 2, 0, 2, 0, 2, 2]
    assert all(text in rows[2] for text in ("12.00", "30.0 %", "15.50"))
    assert all(text in rows[4] for text in ("1.00", "2.5 %", "1.25"))
    assert all(text in rows[7] for text in ("6.00", "15.0 %", "8.25"))


def test_a_profile_from_before_anything_had_parts_is_read() -> None:
    values = json.loads(json.dumps(make_profile().as_dict()))
    for above in ("optimizer", "forward", "clip"):
        del values[f"{above}_host_ms"], values[f"{above}_synchronised_ms"]
    profile = StepProfile.from_dict(values)
    assert (profile.optimizer_host_ms, profile.optimizer_synchronised_ms) == ({}, {})
    assert "optimizer" in str(profile)
    assert "updates" not in str(profile)
    with pytest.raises(RunError, match=r"no part updates; it has forward, clip, optimizer\. .* make them again"):
        profile.host_time("updates")


@pytest.mark.slow
@pytest.mark.parametrize("task", TaskName)
def test_a_profile_of_a_training(task: TaskName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "numbers" / "profile.json"
    begun = time.perf_counter()
    config = ly.compose(tiny_overrides(f"task={task}", "data.image_size=64", "trainer.accumulate=2"))
    profile = ly.profile(config, steps=2, warmup=1, out=out)
    elapsed = 1000 * (time.perf_counter() - begun)
    assert tuple(profile.host_ms) == tuple(profile.synchronised_ms) == (*PARTS, LOOP)
    assert all(value > 0 for value in profile.host_ms.values())
    of_optimizer = (profile.optimizer_host_ms, profile.optimizer_synchronised_ms)
    for inner, outer in zip(of_optimizer, (profile.host_ms, profile.synchronised_ms), strict=True):
        assert set(inner) == {"updates", "orthogonalization"}
        assert 0 < sum(inner.values()) < outer["optimizer"]
    for inner, outer in zip(
        (profile.clip_host_ms, profile.clip_synchronised_ms), (profile.host_ms, profile.synchronised_ms), strict=True
    ):
        assert set(inner) == {"gradient_norm"}
        assert 0 < inner["gradient_norm"] < outer["clip"]
    of_forward = (profile.forward_host_ms, profile.forward_synchronised_ms)
    for inner, outer in zip(of_forward, (profile.host_ms, profile.synchronised_ms), strict=True):
        assert set(inner) == ({"network", "heads"} if task is TaskName.SEGMENT else set())
        assert 0 <= sum(inner.values()) < outer["forward"]
    # the parts of all steps lie one after the other inside the call
    assert 2 * sum(profile.host_ms.values()) + 2 * sum(profile.synchronised_ms.values()) < elapsed
    assert 0 <= profile.wait_ms < profile.step_ms
    assert (profile.device_busy_ms, profile.synchronisations) == (None, None)
    assert profile.launches > 500
    assert json.loads(out.read_text())["host_ms"] == profile.host_ms
    assert [path.name for path in tmp_path.iterdir()] == ["numbers"]  # nothing but the file is kept


def test_epochs_of_one_step_have_no_time_between_steps() -> None:
    with pytest.raises(RunError, match="No step was followed by another one of its epoch"):
        ly.profile(ly.compose(tiny_overrides("data.batch_size=16")), steps=1, warmup=1)


def test_the_length_of_the_run_suffices_and_nothing_is_written() -> None:
    config = ly.compose(["trainer.max_epochs=1", "trainer.max_steps=3", "logger.tensorboard=true"])
    made = shortened(to_root(config), 28)
    assert made.trainer.max_epochs > 3 + 2 * 10 + 5
    assert made.trainer.val_every > made.trainer.max_epochs
    assert made.trainer.max_steps is None
    assert (made.logger.tensorboard, made.logger.csv, made.logger.pictures) == (False, False, False)


def test_a_wrong_setting_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["profile", "steps=0"]) == cli.REFUSED
    assert "steps" in capsys.readouterr().err
    assert cli.main(["profile", "modle=s"]) == cli.REFUSED
    assert "model" in capsys.readouterr().err


def test_operators_are_counted_inside_only() -> None:
    counter = LaunchCounter()
    value = torch.ones(3)
    with counter:
        value = value + 1
        value = value * 2
    value = value - 1
    assert counter.launches == 2


@pytest.mark.gpu
def test_a_device_is_traced(tmp_path: Path) -> None:
    overrides = tiny_overrides("trainer.accelerator=cuda", "data.image_size=320", "data.batch_size=4")
    profile = ly.profile(ly.compose(overrides), steps=10, warmup=5)
    assert profile.device_busy_ms is not None
    assert 0 < profile.device_busy_ms < 2 * sum(profile.synchronised_ms.values())
    assert profile.launches > 1000
    assert profile.synchronisations == {}  # a step does not wait for the device


@pytest.mark.gpu
def test_a_planted_synchronisation_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = StepClock.on_before_backward

    def reading(self: StepClock, trainer: object, module: object, loss: torch.Tensor) -> None:
        loss.item()
        plain(self, trainer, module, loss)  # type: ignore[arg-type]

    monkeypatch.setattr(StepClock, "on_before_backward", reading)
    profile = ly.profile(ly.compose(tiny_overrides("trainer.accelerator=cuda")), steps=4, warmup=3)
    assert profile.synchronisations is not None
    assert sum(profile.synchronisations.values()) >= 1
