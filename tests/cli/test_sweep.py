"""Sweeps: a process a job, a directory a job, and one exit code for all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import lucid_yolo
from lucid_yolo.config import sweep
from lucid_yolo.config.compose import Request, compose_with_hydra, read_request
from lucid_yolo.config.errors import RunError
from lucid_yolo.config.schema import PrecisionName
from lucid_yolo.perf.plan import resolve
from tests.perf.machines import CUDA, make_config

CHECKOUT = Path(lucid_yolo.__file__).resolve().parents[1]
# Python runs a module of this name at its start: it notes each process without a change to the program.
WITNESS = "import os, sys\nopen(os.environ['WITNESS'], 'a').write(f'{os.getpid()} {sys.argv[1:]}\\n')\n"


def start(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    hooks = folder / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(WITNESS)
    work = folder / "work"
    work.mkdir()
    env = {**os.environ, "PYTHONPATH": f"{hooks}:{CHECKOUT}", "WITNESS": str(folder / "processes")}
    command = [sys.executable, "-m", "lucid_yolo", *arguments]
    return subprocess.run(command, cwd=work, env=env, check=False, capture_output=True, text=True)


def processes(folder: Path) -> list[tuple[int, str]]:
    lines = (folder / "processes").read_text().splitlines()
    return [(int(line.split()[0]), line.partition(" ")[2]) for line in lines if "check" in line]


def test_each_job_has_a_process_and_a_failing_one_does_not_stop_the_others(tmp_path: Path) -> None:
    done = start(tmp_path, "check", "-m", "data.options.num_val=0,2", "data.options.num_train=4")
    seen = processes(tmp_path)
    assert len({pid for pid, _ in seen}) == len(seen) == 3  # the sweep and its two jobs
    assert "'data.options.num_val=0'" in seen[1][1]
    assert "'data.options.num_val=2'" in seen[2][1]
    assert done.returncode == 1
    assert "No problems." in done.stdout  # the second job ran
    assert "error: Job 0 of the sweep failed with exit code 2: " in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path / "work") == []  # only train has a directory


class Launched:
    """Records the child processes that a sweep would start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int = 0) -> None:
        self.commands: list[list[str]] = []
        self.code = code
        monkeypatch.setattr(sweep, "_child", self)

    def __call__(self, arguments: list[str], *, cwd: str) -> int:
        assert cwd == os.getcwd()
        self.commands.append(list(arguments))
        return self.code


def run(*overrides: str, verb: str = "train") -> Request:
    request = read_request(overrides)
    sweep.run_sweep(verb, request, compose_with_hydra(request, multirun=True))
    return request


def test_jobs_of_a_training_sweep_lie_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    launched = Launched(monkeypatch)
    run("run_dir=out", "seed=0,1", "model=s")
    assert launched.commands == [
        ["train", "hydra.mode=RUN", f"seed={seed}", "model=s", f"run_dir='{tmp_path}/out/{seed}'"] for seed in (0, 1)
    ]
    assert sorted(os.listdir("out")) == ["0", "1", "multirun.yaml"]
    assert os.listdir("out/0") == []  # Hydra writes nothing into it: the run claims it
    with pytest.raises(RunError, match="exists and is not empty"):
        run("run_dir=out", "seed=0,1")


def test_a_table_says_what_set_the_runs_apart_and_how_they_ended(tmp_path: Path) -> None:
    for number, (seed, primary) in {10: (2, 0.25), 9: (1, None)}.items():
        run = tmp_path / str(number)
        run.mkdir()
        (run / "overrides.yaml").write_text(f"- model=s\n- seed={seed}\n- run_dir=x\n")
        status = "failed" if primary is None else "finished"
        summary = {"status": status, "metrics": {"primary": primary}, "timing": {"fit_seconds": primary and 41.6}}
        (run / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "11").mkdir()
    (tmp_path / "11" / "summary.json").write_text("{ torn")
    table = sweep.sweep_table(tmp_path)
    rows = list(zip(*(map(str, column.cells) for column in table.columns), strict=True))
    assert rows == [("9", "seed=1", "failed", "", ""), ("10", "seed=2", "finished", "0.2500", "42 s")]


@pytest.mark.filterwarnings("ignore:requested, but not active")
def test_the_table_names_flags_that_fell_back(tmp_path: Path) -> None:
    machine = replace(CUDA, cuda_devices=(), accelerator="cpu", accelerator_reason="no CUDA device")
    asked = make_config(precision=PrecisionName.BF16, capture=["network"])
    plans = {
        "0": resolve(asked, machine, None),
        "1": resolve(asked, CUDA, None),
        "2": resolve(asked, CUDA, None).complete({"capture.network": {"replays": 1, "retired": "a hook was added"}}),
    }
    for name, plan in plans.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "overrides.yaml").write_text(f"- seed={name}\n")
        summary = {"status": "finished", "metrics": {}, "timing": {}, "plan": plan.as_dict()}
        (tmp_path / name / "summary.json").write_text(json.dumps(summary))
    assert list(sweep.sweep_table(tmp_path).columns[2].cells) == [
        "finished, fell back: capture.network, precision",
        "finished",
        "finished, fell back: capture.network",
    ]


def test_default_directories_of_a_sweep_lie_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    launched = Launched(monkeypatch)
    run("seed=0,1")
    folders = {Path(command[-1].partition("=")[2].strip("'")).parent for command in launched.commands}
    assert len(folders) == 1
    assert folders.pop().parent == tmp_path / "runs"


def test_the_first_failure_is_raised_after_all_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    launched = Launched(monkeypatch, code=1)
    with pytest.raises(RunError, match=r"Job 0 of the sweep failed with exit code 1"):
        run("seed=0,1,2")
    assert len(launched.commands) == 3


def test_folders_of_the_user_reach_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine" / "experiment" / "axes.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("# @package _global_\nhydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      seed: 4,5\n")
    launched = Launched(monkeypatch)
    request = read_request(["experiment=axes", "run_dir=out"], config_dirs=["mine"])
    composed = compose_with_hydra(request, multirun=False)
    assert str(composed.hydra.mode).endswith("MULTIRUN")
    sweep.run_sweep("train", request, composed)
    assert [f"--config-dir={tmp_path}/mine" in command for command in launched.commands] == [True, True]
    assert [command[2:-1] for command in launched.commands] == [
        ["hydra.mode=RUN", "seed=4", "experiment=axes"],  # else each job would be the sweep again
        ["hydra.mode=RUN", "seed=5", "experiment=axes"],
    ]


def test_a_sweep_returns_the_primary_metric_to_optimising_sweepers(tmp_path: Path) -> None:
    assert sweep._primary_metric(tmp_path) is None
    (tmp_path / "summary.json").write_text('{"metrics": {"primary": 0.5}}')
    assert sweep._primary_metric(tmp_path) == 0.5


STUBBORN = """
import signal, sys, time
def save(*_):
    time.sleep(1.5); open({done!r}, "w").write("saved"); sys.exit(130)
signal.signal(signal.SIGINT, save)
open({ready!r}, "w").close()
time.sleep(60)
"""
PARENT = """
import signal, sys
from lucid_yolo.config import sweep
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is started with it ignored
sweep.sys.executable = sys.argv[1]
try:
    sweep._child([], cwd=".")
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_ctrl_c_waits_for_a_job_that_saves_its_state(tmp_path: Path) -> None:
    done, ready = tmp_path / "done", tmp_path / "ready"
    child = tmp_path / "child"
    child.write_text(f"#!{sys.executable}\n{STUBBORN.format(done=str(done), ready=str(ready))}")
    child.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(child)],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        start_new_session=True,
    ) as parent:
        for _ in range(600):
            if ready.exists():
                break
            time.sleep(0.1)
        os.killpg(parent.pid, signal.SIGINT)
        assert parent.wait(timeout=60) == 130
    assert done.read_text() == "saved"
