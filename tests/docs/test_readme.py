"""The README's two commands do what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.checkout import ROOT, run_python
from tests.engine.tiny import SHORT, tiny_overrides

INSTALL_AND_TRAIN = "python -m venv .venv && . .venv/bin/activate && pip install -e . && python train.py"
RUN_TESTS = ". .venv/bin/activate && pip install --upgrade pip && pip install --group dev && pytest"


def first_commands(page: str) -> list[str]:
    """The first two fenced blocks of a page."""
    return [block.strip() for block in re.findall(r"^```(?=\n)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[:2]]


def bash(command: str, folder: Path, *, timeout: float) -> str:
    """Run a command as a stranger would, outside the environment of the tests."""
    environment = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


def test_the_commands_are_the_first_thing_that_the_readme_shows():
    assert first_commands((ROOT / "README.md").read_text("utf-8")) == [INSTALL_AND_TRAIN, RUN_TESTS]


def test_documentation_shows_the_same_first_command():
    assert first_commands((ROOT / "docs" / "index.md").read_text("utf-8"))[0] == INSTALL_AND_TRAIN


def test_what_the_commands_install_exists():
    pyproject = (ROOT / "pyproject.toml").read_text("utf-8")
    assert "\n[dependency-groups]\ndev = [" in pyproject
    assert "pytest" in pyproject.split("[dependency-groups]")[1].split("]")[0]


@pytest.mark.slow
def test_training_command_leaves_a_run_directory(tmp_path):
    script = INSTALL_AND_TRAIN.rpartition("&& python ")[2]
    done = run_python(script, *tiny_overrides(*SHORT), f"run_dir={tmp_path / 'run'}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "run" / "summary.json").is_file()
    assert (tmp_path / "run" / "checkpoints" / "best.ckpt").is_file()


@pytest.mark.install
def test_both_commands_on_a_bare_copy(tmp_path):
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in tracked.splitlines():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    bash(INSTALL_AND_TRAIN, tmp_path, timeout=1800)
    assert list(tmp_path.glob("runs/*/summary.json"))
    words = bash(RUN_TESTS, tmp_path, timeout=1800)
    assert re.search(r"\d+ passed", words.splitlines()[-1])
