"""Places that a run keeps of a data set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.schema import DataConfig
from lucid_yolo.data.readers import with_lasting_places
from lucid_yolo.data.readers.settings import check_options, named_path
from lucid_yolo.data.readers.yolo_files import list_images, read_data_yaml

FILES = ("set/lists/val.txt", "here/mine/val.txt", "set/both.txt", "here/both.txt")


def write_files(folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@pytest.mark.parametrize(("value", "place"), [("lists/val.txt", "set"), ("mine/val.txt", "here"), ("both.txt", "set")])
def test_a_place_is_the_same_from_another_working_directory(
    value: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path, FILES)
    monkeypatch.chdir(tmp_path / "here")
    given = DataConfig(format="coco", root=os.path.join("..", "set"), val=value)
    kept = with_lasting_places(given)
    assert given.val == value  # what a user holds stays as it is
    monkeypatch.chdir(tmp_path)
    assert kept.root is not None
    assert kept.val is not None
    assert named_path("data.val", kept.val, Path(kept.root)).resolve() == tmp_path / place / value


@pytest.mark.parametrize("folder", ["extra", "mine", "both"])
def test_a_description_with_a_folder_of_its_own_is_asked(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = ("set/real/images/extra/a.png", "here/images/mine/b.png", "set/real/images/both/c.png")
    write_files(tmp_path, (*places, "here/images/both/d.png", "here/images/extra.txt"))
    (tmp_path / "set" / "data.yaml").write_text("path: real\ntrain: images/extra\nval: images/both\nnames: [a]\n")
    monkeypatch.chdir(tmp_path / "here")
    config = DataConfig(format="yolo", root="../set", val=f"images/{folder}")
    kept = with_lasting_places(config)
    found, _ = list_images(read_data_yaml(config), config, "val")
    monkeypatch.chdir(tmp_path)
    again, _ = list_images(read_data_yaml(kept), kept, "val")
    assert [Path(image).resolve() for image in again] == [Path(image).resolve() for image in found]
    assert len(found) == 1


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("maxobjects", "did you mean 'max_objects'?"),
        ("foo", "know this option; allowed: max_objects"),
        (1, "allowed"),
    ],
)
def test_an_unknown_option_is_named_with_what_is_allowed(key: object, says: str) -> None:
    config = DataConfig(format="shapes", options={key: 1})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=says.replace("?", r"\?")):
        check_options(config, allowed=("seed", "max_objects"))
