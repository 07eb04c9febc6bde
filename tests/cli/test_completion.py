"""Tab completion in three shells, with and without a verb."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import lucid_yolo
from lucid_yolo import cli
from lucid_yolo.config.completion import Line, read_line

CHECKOUT = Path(lucid_yolo.__file__).resolve().parents[1]


def complete(
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    shell: str = "bash",
    default_verb: str | None = None,
) -> list[str]:
    monkeypatch.setenv("COMP_LINE", line)
    assert cli.main(["-sc", f"query={shell}"], default_verb=default_verb) == 0
    out = capsys.readouterr().out
    assert ("\n" in out.strip()) == (shell == "fish" and len(out.split()) > 1)
    return out.split()


CASES = {
    "lucid-yolo train optimizer=": ["optimizer=adamw", "optimizer=musgd", "optimizer=sgd"],
    "lucid-yolo plan model=s optimizer=a": ["optimizer=adamw"],
    "lucid-yolo train optimizer=adamw optimizer.be": ["optimizer.beta1=", "optimizer.beta2="],
    "lucid-yolo train data.augment.hs": ["data.augment.hsv_h=", "data.augment.hsv_s=", "data.augment.hsv_v="],
    "lucid-yolo train hsv=": ["hsv=device", "hsv=device_native", "hsv=worker"],
    "lucid-yolo plan hsv=device prefetch=e": ["prefetch=epoch"],
    "lucid-yolo train data.recipe.ep": ["data.recipe.epochs="],
    "lucid-yolo train capture=network+loss+g": [
        "capture=network+loss+gradient_norm",
        "capture=network+loss+gradient_norm+orthogonalization",
        "capture=network+loss+gradient_norm+orthogonalization+updates",
        "capture=network+loss+gradient_norm+updates",
    ],
    "lucid-yolo train compile=s": ["compile=step"],
    "/opt/bin/lucid-yolo check prec": ["precision.", "precision="],
    "python -m lucid_yolo train task=": ["task=detect", "task=keypoints", "task=obb", "task=segment"],
    "lucid-yolo ": ["check", "compare", "plan", "predict", "profile", "train", "validate"],
    "lucid-yolo p": ["plan", "predict", "profile"],
    "lucid-yolo predict ch": ["checkpoint="],
    "lucid-yolo predict decode=": ["decode=one_to_one", "decode=one_to_many"],
    "lucid-yolo predict save.json=": ["save.json=true", "save.json=false"],
    "lucid-yolo validate split=t": ["split=train", "split=test"],
    "lucid-yolo validate accelerator=c": ["accelerator=cpu", "accelerator=cuda"],
    "lucid-yolo compare wor": ["workload="],
    "lucid-yolo compare workload=detect_b1": [
        "workload=detect_b16",
        "workload=detect_b16_any_order",
        "workload=detect_b16_crowded",
        "workload=detect_b16_m",
        "workload=detect_b16_s",
    ],
    "lucid-yolo compare workload=tiny blocks=2 cache=": ["cache=decoded", "cache=none", "cache=prepared"],
    "lucid-yolo compare keep_checkpoints=t": ["keep_checkpoints=true"],
    "lucid-yolo profile steps=4 optimizer=a": ["optimizer=adamw"],
    "lucid-yolo profile st": ["steps="],
    "lucid-yolo train --mul": ["--multirun"],
    "lucid-yolo train model=q se": [],
    "lucid-yolo train over": [],
}


@pytest.mark.parametrize(("line", "expected"), CASES.items(), ids=list(CASES))
def test_suggestions(
    line: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complete(line, monkeypatch, capsys) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells(shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(complete("lucid-yolo train model=", monkeypatch, capsys, shell=shell)) == 5
    assert cli.main(["-sc", f"install={shell}"]) == 0
    assert f"-sc query={'fish' if shell == 'fish' else 'bash'}" in capsys.readouterr().out


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-sc", "install=cmd"]) == cli.REFUSED
    assert "install=bash" in capsys.readouterr().err


def test_train_py_completes_with_and_without_a_verb(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in ("python train.py model=s tas", "python train.py plan model=s tas"):
        assert complete(line, monkeypatch, capsys, default_verb="train") == ["task.", "task="]


def test_files_and_options_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    (tmp_path / "mine" / "experiment" / "short.yaml").write_text("# @package _global_\nseed: 3\n")
    monkeypatch.chdir(tmp_path)
    assert complete("lucid-yolo train data.root=./mi", monkeypatch, capsys) == ["data.root=./mine"]
    for flag in ("--config-dir mine", "--config-dir=mine", "-cd mine"):
        line = f"lucid-yolo train {flag} experiment="
        assert complete(line, monkeypatch, capsys) == ["experiment=bccd", "experiment=overfit", "experiment=short"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("lucid-yolo", Line(None, (), "lucid-yolo")),
        ("lucid-yolo tr", Line(None, (), "tr")),
        ("lucid-yolo train", Line(None, (), "train")),
        ("lucid-yolo train ", Line("train", (), "")),
        ("python3 a/train.py x=1 y", Line(None, ("x=1",), "y")),
        ("python -m lucid_yolo plan x=1 ", Line("plan", ("x=1",), "")),
    ],
)
def test_lines(text: str, line: Line) -> None:
    assert read_line(text, cli.VERBS) == line


BASH = """
eval "$({python} {script} -sc install=bash)"
COMP_LINE="python {script} {words}"; COMP_CWORD=2; COMP_POINT=${{#COMP_LINE}}
hydra_bash_completion
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def test_a_real_bash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    script = BASH.format(python=sys.executable, script="train.py", words="optimizer=")
    done = subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True, cwd=CHECKOUT)
    assert done.stdout.split() == ["optimizer=adamw", "optimizer=musgd", "optimizer=sgd"]
