"""Paths that a checkpoint keeps of a data set."""

from __future__ import annotations

from pathlib import Path

import pytest

from lucid_yolo.data.readers.settings import lasting_path, named_path


@pytest.mark.parametrize(("value", "place"), [("lists/val.txt", "set"), ("mine/val.txt", "here"), ("both.txt", "set")])
@pytest.mark.parametrize("described", [False, True])
def test_a_place_is_the_same_from_another_working_directory(
    value: str, place: str, described: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("set/lists/val.txt", "here/mine/val.txt", "set/both.txt", "here/both.txt", "set/data.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    kept = lasting_path(value, tmp_path / "set" / "data.yaml" if described else tmp_path / "set")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert named_path("data.val", kept, tmp_path / "set") == tmp_path / place / value
