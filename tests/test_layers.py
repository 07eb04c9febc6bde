"""The import contracts and the length of files hold, and each of them notices a planted violation."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.checkout import ROOT, run_python

LONGEST = 400  # lines of a file, says CONTRIBUTING.md
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"

# What is planted: the module that gets an import it must not have, the import, and the contract that must notice.
VIOLATIONS = {
    "upwards": ("nn/model.py", "import lucid_yolo.engine", "Imports point down only"),
    "below perf": ("data/batch.py", "import lucid_yolo.perf.plan", "Imports point down only"),
    "late": ("ops/boxes.py", "def late():\n    import lucid_yolo.tasks", "Imports point down only"),
    "sideways": ("eval/__init__.py", "import lucid_yolo.viz", "do not know each other"),
    "torch in config": ("config/names.py", "import torch", "The configuration is read without torch"),
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package and the contracts, to plant things in."""
    shutil.copytree(ROOT / "lucid_yolo", tmp_path / "lucid_yolo", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint(folder: Path) -> tuple[int, str]:
    """Exit status and words of the import linter, on one line."""
    done = run_python("-c", LINT, cwd=folder, path=[folder])
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_contracts_hold():
    status, words = lint(ROOT)
    assert status == 0, words
    assert "Contracts: 3 kept, 0 broken." in words


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_planted_violation_is_noticed(copy, name):
    module, line, contract = VIOLATIONS[name]
    path = copy / "lucid_yolo" / module
    path.write_text(f"{path.read_text()}\n{line}\n")
    status, words = lint(copy)
    assert status == 1, words
    assert f"{contract} BROKEN" in words


def test_a_new_module_must_say_where_it_belongs(copy):
    (copy / "lucid_yolo" / "helpers.py").touch()
    status, words = lint(copy)
    assert status == 1, words
    assert "helpers" in words


def long_files(folder: Path) -> list[str]:
    """Files of the package that are longer than allowed."""
    return [path.name for path in folder.rglob("*.py") if len(path.read_text("utf-8").splitlines()) > LONGEST]


def test_no_file_is_too_long():
    assert f"under {LONGEST} lines" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert long_files(ROOT / "lucid_yolo") == []


def test_a_file_that_is_too_long_is_noticed(copy):
    (copy / "lucid_yolo" / "config" / "names.py").write_text("pass\n" * (LONGEST + 1))
    assert long_files(copy / "lucid_yolo") == ["names.py"]


def test_importing_the_package_is_cheap():
    names = ("torch", "lightning", "triton")
    code = f"import sys, lucid_yolo, lucid_yolo.cli; print([name for name in {names} if name in sys.modules])"
    assert run_python("-c", code).stdout.strip() == "[]"
