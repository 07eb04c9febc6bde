"""The wheel holds what an installed program needs, and works from another directory."""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.checkout import ROOT, run_python
from tests.engine.tiny import SHORT, tiny_overrides

DATA_FOLDERS = ("conf", "multirun_sweeps")


def build_wheel(source: Path, out: Path) -> Path:
    """Build a wheel with the tools at hand; nothing is downloaded."""
    done = run_python("-m", "build", "--wheel", "--no-isolation", "--outdir", out, source, cwd=source)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


def absent_files(wheel: Path, source: Path) -> set[str]:
    """Files of the data folders that are in the checkout and not in the wheel."""
    names = set(zipfile.ZipFile(wheel).namelist())
    files = (f for folder in DATA_FOLDERS for f in (source / folder).rglob("*") if f.suffix in (".yaml", ".md"))
    return {path for f in files if f"lucid_yolo/{(path := f.relative_to(source).as_posix())}" not in names}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory) -> Path:
    """A folder with the installed wheel; its dependencies are those of the tests."""
    folder = tmp_path_factory.mktemp("installed")
    done = run_python("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder, wheel)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def script(installed, tmp_path):
    """Run the console script in a directory of its own."""
    return lambda *arguments: run_python(installed / "bin" / "lucid-yolo", *arguments, cwd=tmp_path, path=[installed])


def metadata(wheel: Path) -> str:
    archive = zipfile.ZipFile(wheel)
    (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
    return archive.read(name).decode()


def test_every_option_file_is_in_the_wheel(wheel):
    assert absent_files(wheel, ROOT) == set()
    packed = [n for n in zipfile.ZipFile(wheel).namelist() if n.endswith(".yaml")]
    assert len(packed) == sum(len(list((ROOT / folder).rglob("*.yaml"))) for folder in DATA_FOLDERS)


def test_a_wheel_without_option_files_is_noticed(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("lucid_yolo", *DATA_FOLDERS):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    planted = (ROOT / "pyproject.toml").read_text("utf-8").replace('"conf" = "lucid_yolo/conf"\n', "")
    (source / "pyproject.toml").write_text(planted)
    absent = absent_files(build_wheel(source, tmp_path / "out"), source)
    assert "conf/config.yaml" in absent
    assert not any(name.startswith("multirun_sweeps/") for name in absent)


def test_metadata(wheel):
    text = metadata(wheel)
    required = dict(re.findall(r"^Requires-Dist: ([\w-]+)(.*)$", text, re.MULTILINE))
    assert required["triton"].strip() == "; sys_platform == 'linux'"
    assert required["torch"] == ">=2.9"
    assert "License-Expression: Apache-2.0" in text
    assert {"LICENSE", "NOTICE"} <= set(re.findall(r"^License-File: (.*)$", text, re.MULTILINE))
    assert "ultralytics" not in "".join(required).lower()


def test_no_stray_files_in_the_wheel(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"lucid_yolo"}
    assert "lucid_yolo/py.typed" in names


def test_console_script_uses_the_installed_files(script, installed):
    where = run_python("-c", "import lucid_yolo; print(lucid_yolo.__file__)", cwd=installed.parent, path=[installed])
    assert where.stdout.strip() == str(installed / "lucid_yolo" / "__init__.py")
    assert script("--version").stdout == "lucid-yolo 0.1.0\n"
    done = script("train", "--cfg", "job", "model=s", "capture=network+loss")
    assert done.returncode == 0, done.stderr
    assert "variant: s" in done.stdout
    assert done.stdout.count("selected: true") == 2


def test_console_script_takes_a_users_option_file(script, tmp_path):
    (tmp_path / "my_conf" / "data").mkdir(parents=True)
    (tmp_path / "my_conf" / "data" / "parts.yaml").write_text("format: coco\nroot: parts\nbatch_size: 3\n")
    done = script("train", "--config-dir", "my_conf", "data=parts", "--cfg", "job")
    assert done.returncode == 0, done.stderr
    assert "batch_size: 3" in done.stdout
    assert f"root: {tmp_path / 'parts'}" in done.stdout


def test_console_script_refuses_an_unknown_key(script):
    done = script("train", "modle=s")
    assert done.returncode == 2
    assert "model" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_console_script_trains(script, tmp_path):
    done = script("train", *tiny_overrides(*SHORT), "run_dir=run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "run" / "summary.json").is_file()
