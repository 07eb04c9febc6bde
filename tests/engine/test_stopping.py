"""How a run stops, fails and goes on: signals, cut epochs, a second process, a full disk, a reader that went away."""

from __future__ import annotations

import argparse
import errno
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from omegaconf import DictConfig

from lucid_yolo.config.errors import ConfigError, RunError
from lucid_yolo.engine import train as verb
from lucid_yolo.engine.build import build_loggers
from lucid_yolo.engine.callbacks import _is_better
from lucid_yolo.engine.checkpoint import CheckpointFiles, read_checkpoint
from lucid_yolo.engine.console import RunConsole
from lucid_yolo.engine.metrics_log import MetricsLog
from lucid_yolo.engine.run_dir import MARKER, claim, explain_unwritable, hold, write_text
from tests.engine.tiny import STEPS_AN_EPOCH, learn, read_state, resumed, tiny_config

Compose = Callable[..., DictConfig]
EPOCHS = ("data.options.num_train=10", "trainer.max_epochs=2", "trainer.val_every=2")
train = verb.train


class After(L.Callback):
    """Does something after a batch, counted over the run from 1."""

    def __init__(self, batch: int, action: Callable[[L.Trainer], Any]) -> None:
        self.left, self.action = batch, action

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        self.left -= 1
        if self.left == 0:
            self.action(trainer)


def send(number: int, times: int = 1) -> Callable[[L.Trainer], None]:
    def action(_: L.Trainer) -> None:
        for _time in range(times):
            os.kill(os.getpid(), number)

    return action


def read_summary(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "summary.json").read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs that nothing stopped."""
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    assert learn(tiny_config(run_dir, *EPOCHS)).status == "finished"
    return run_dir


def stop_by_limit(compose: Compose) -> Path:
    return train(compose(*EPOCHS, "trainer.max_steps=4")).run_dir


def stop_by_callback(compose: Compose) -> Path:
    return train(compose(*EPOCHS), callbacks=[After(4, lambda trainer: setattr(trainer, "should_stop", True))]).run_dir


@pytest.mark.parametrize("stop", [stop_by_limit, stop_by_callback])
def test_an_epoch_that_was_cut_is_completed_when_the_run_goes_on(whole: Path, tiny: Compose, stop: Any) -> None:
    run_dir = stop(tiny)
    assert read_state(run_dir)["global_step"] == 4
    assert read_summary(run_dir)["metrics"]["primary"] is not None  # its end is an end: validated and scored
    learn(resumed(run_dir, max_steps=None))
    expected, found = read_state(whole), read_state(run_dir)
    assert found["global_step"] == 2 * STEPS_AN_EPOCH
    assert all(torch.equal(value, found["state_dict"][key]) for key, value in expected["state_dict"].items())


def test_updates_that_are_done_are_not_made_again(tiny: Compose) -> None:
    run_dir = learn(tiny(*EPOCHS, "trainer.max_steps=1")).run_dir
    with pytest.raises(RunError, match=r"made its 1 update, nothing is left.*trainer\.max_steps"):
        train(resumed(run_dir))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_of_a_scheduler_waits_for_the_update_and_saves(tiny: Compose, number: int) -> None:
    before = signal.getsignal(number)
    result = train(tiny("trainer.accumulate=2"), callbacks=[After(5, send(number))])
    assert result.status == "interrupted"
    assert read_state(result.run_dir)["global_step"] == 3  # batch 5 is half an update, batch 6 completes it
    assert signal.getsignal(number) == before


def test_a_second_ctrl_c_does_not_claim_a_saved_state(tiny: Compose, capsys: pytest.CaptureFixture[str]) -> None:
    result = train(tiny(), callbacks=[After(2, send(signal.SIGINT, times=2))])
    assert result.status == "interrupted"
    assert not (result.run_dir / "checkpoints" / "last.ckpt").exists()
    assert "before anything was saved" in capsys.readouterr().out


def test_a_run_that_stopped_in_its_last_report_only_makes_the_report(
    tiny: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press_ctrl_c(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(verb, "final_report", press_ctrl_c)
        stopped = train(tiny("data.options.num_train=6", "trainer.max_epochs=1"))
    assert stopped.status == read_summary(stopped.run_dir)["status"] == "interrupted"
    steps = read_state(stopped.run_dir)["global_step"]
    assert train(resumed(stopped.run_dir)).status == "finished"
    assert read_state(stopped.run_dir)["global_step"] == steps
    assert read_summary(stopped.run_dir)["metrics"]["primary"] is not None


def test_gradients_that_are_never_finite_stop_the_run(tiny: Compose) -> None:
    class Spoil(L.Callback):
        def on_after_backward(self, trainer: L.Trainer, module: Any) -> None:
            next(module.model.parameters()).grad.fill_(float("nan"))

    with pytest.raises(RunError, match=r"gradient became infinite or not a number.*\.jpg"):
        train(tiny(), callbacks=[Spoil()])


def test_a_full_disk_is_a_sentence_and_keeps_the_last_state(tiny: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = CheckpointFiles.save_checkpoint

    def fill(self: CheckpointFiles, checkpoint: dict[str, Any], path: Path, storage_options: Any = None) -> None:
        saved(self, checkpoint, path)
        if checkpoint["global_step"] > STEPS_AN_EPOCH:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(CheckpointFiles, "save_checkpoint", fill)
    with pytest.raises(RunError, match=r"No space left on device \(.*last\.partial\).*train resume="):
        train(tiny(*EPOCHS))
    monkeypatch.undo()
    run_dir = Path(tiny().run_dir)
    assert read_summary(run_dir)["status"] == "failed"
    assert "No space left" in read_summary(run_dir)["error"]
    assert sorted(p.name for p in (run_dir / "checkpoints").iterdir()) == ["last.ckpt"]
    assert read_state(run_dir)["global_step"] == STEPS_AN_EPOCH


def test_other_errors_of_the_system_keep_their_trace(tmp_path: Path) -> None:
    with pytest.raises(ConnectionResetError), explain_unwritable(claim(tmp_path / "run")):
        raise ConnectionResetError(errno.ECONNRESET, "reset")


def test_one_process_at_a_time_trains_a_run(tmp_path: Path) -> None:
    run = claim(tmp_path / "run")
    code = f"import fcntl; f = open({str(run.root / MARKER)!r}, 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(1); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(RunError, match="another process trains this run"), hold(run):
            pass
        other.communicate("\n")
    with hold(run):
        pass  # it let go when it died


def test_a_text_is_replaced_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("old")
    (tmp_path / "config.yaml.partial").mkdir()  # the new one cannot be written
    with pytest.raises(OSError, match="directory"):
        write_text(tmp_path / "config.yaml", "new")
    assert (tmp_path / "config.yaml").read_text() == "old"


def test_a_reader_that_goes_away_does_not_end_the_run(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    code = (
        "from pathlib import Path; from lucid_yolo.engine.console import RunConsole\n"
        f"with RunConsole(Path({str(log)!r})) as console:\n"
        "    for number in range(3): console.print(f'line {number}')\n"
    )
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
    assert log.read_text().split() == ["line", "0", "line", "1", "line", "2"]


def test_the_log_of_a_notebook_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    with RunConsole(tmp_path / "log.txt") as console:
        console.log("a line")
    assert (tmp_path / "log.txt").read_text() == "a line\n"


def test_a_row_that_a_crash_cut_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,step,lr\n1,3,0.1\n1,4,0.2\n2")
    MetricsLog(path, None, columns=["lr"], resume_step=3)
    assert path.read_text().split() == ["epoch,step,lr", "1,3,0.1"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b"PK\x03\x04 torn", "it is damaged, or only a part of the file"),
        (b'{"status": "finished"}', "it is no file that torch has saved"),
        (b"seed: 0\n", "it is no file that torch has saved"),
    ],
)
def test_a_torn_checkpoint_is_a_sentence(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "last.ckpt").write_bytes(content)
    with pytest.raises(RunError, match=f"cannot be read as a checkpoint of this project: {reason}\\. Name a run"):
        read_checkpoint(tmp_path / "last.ckpt")


def test_a_checkpoint_of_another_project_is_not_loaded_and_answered_in_our_words(tmp_path: Path) -> None:
    torch.save({"model": argparse.Namespace(a=1)}, tmp_path / "best.pt")
    with pytest.raises(RunError, match="it holds objects of Python code") as caught:
        read_checkpoint(tmp_path / "best.pt")
    assert "weights_only" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_score_that_is_no_number_yields_to_any_other() -> None:
    assert _is_better(0.0, None)
    assert _is_better(0.0, math.nan)
    assert _is_better(math.nan, None)
    assert not _is_better(math.nan, 0.0)
    assert not _is_better(0.5, 0.5)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"_target_": "builtins.dict", "x": 1}, "no Lightning logger but a dict"),
        ({"_target_": "no.such.Logger"}, "Error locating target 'no.such.Logger'$"),
    ],
)
def test_a_wrong_logger_is_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"logger\.extra\[0\].*{reason}"):
        build_loggers([settings])
