"""Every command that the documentation shows is one that the program accepts."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from lucid_yolo import cli
from lucid_yolo.bench.compare import workload_of
from lucid_yolo.config.verbs import (
    CompareConfig,
    PredictConfig,
    ProfileConfig,
    ValidateConfig,
    parse_settings,
    split_arguments,
)
from tests.checkout import ROOT

PAGES = [ROOT / "README.md", ROOT / "multirun_sweeps" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SETTINGS = {"validate": ValidateConfig, "predict": PredictConfig}
SHOWN_TO_FAIL = {"python train.py modle=s optimizer.lrr=0.2"}


def commands(page: Path) -> list[str]:
    """Commands of this program in the fenced blocks of a page."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ ").strip() for kind, block in blocks if not kind for line in block.splitlines()]
    return [line for line in lines if line.startswith(("python train.py", "lucid-yolo "))]


def accept(command: str) -> int:
    """Exit status of a command that is checked as if it were run, without running it."""
    words = shlex.split(command, comments=True)
    arguments = words[2:] if words[0] == "python" else words[1:]
    verb = arguments[0] if words[0] != "python" else "train"
    if verb in SETTINGS:
        parse_settings(SETTINGS[verb], arguments[1:])
        return 0
    if verb == "profile":
        mine, arguments = split_arguments(ProfileConfig, arguments)
        parse_settings(ProfileConfig, mine[1:])
        arguments = ["train", *arguments[1:]]
    if verb == "compare":
        mine, overrides = split_arguments(CompareConfig, arguments[1:])
        config = parse_settings(CompareConfig, mine)
        if config.runs is None:
            workload_of(config, overrides)
        arguments = ["train", *overrides]
    return cli.main([*arguments, "--cfg", "job"], default_verb="train")


ALL = [(page.relative_to(ROOT).as_posix(), command) for page in PAGES for command in commands(page)]
# A command that continues a run needs one; the engine's tests resume runs.
COMPOSED = [pair for pair in ALL if "resume=" not in pair[1] and pair[1] not in SHOWN_TO_FAIL]


@pytest.fixture(autouse=True)
def user_folder(tmp_path, monkeypatch):
    """A user's directory with the sweeps of the checkout and the option file that the documentation shows."""
    page = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    (own_file,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "my_conf" / "data").mkdir(parents=True)
    (tmp_path / "my_conf" / "data" / "parts.yaml").write_text(own_file)
    measuring = (ROOT / "docs" / "measuring.md").read_text("utf-8")
    (own_arms,) = re.findall(r"^```yaml title=\"my_arms.yaml\"\n(.*?)^```", measuring, re.MULTILINE | re.DOTALL)
    (tmp_path / "my_arms.yaml").write_text(own_arms)
    (tmp_path / "multirun_sweeps").symlink_to(ROOT / "multirun_sweeps")
    monkeypatch.chdir(tmp_path)


def test_commands_are_found():
    assert len(COMPOSED) >= 20


@pytest.mark.parametrize(("page", "command"), COMPOSED)
def test_command_is_accepted(page, command, capsys):
    assert accept(command) == 0, capsys.readouterr().err


@pytest.mark.parametrize("command", sorted(SHOWN_TO_FAIL))
def test_command_that_is_shown_to_fail_names_the_nearest_keys(command, capsys):
    assert command in [shown for _, shown in ALL]
    assert accept(command) == 2
    message = capsys.readouterr().err
    assert "2 problems" in message
    assert re.search(r"modle.*model", message)
    assert re.search(r"optimizer\.lrr.*optimizer\.lr", message)


def test_a_planted_wrong_command_is_refused(capsys):
    assert accept("lucid-yolo train modell=s") == 2
    assert "model" in capsys.readouterr().err
