"""The files of a YOLO data set: data.yaml, the images that its splits list, and the label file of each image."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from lucid_yolo.config.errors import DataError
from lucid_yolo.config.schema import DataConfig
from lucid_yolo.data.readers.problems import Problems, counted, some
from lucid_yolo.data.readers.settings import Split, data_root, naming

IMAGE_SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
_SPLIT_KEYS: dict[Split, tuple[str, ...]] = {
    "train": ("train",),
    "val": ("val", "valid", "validation"),
    "test": ("test",),
}


@dataclass(frozen=True, slots=True)
class DataYaml:
    """What a data.yaml says.

    Attributes:
        file: the file itself.
        base: folder that the paths of the splits are relative to.
        names: one name a class.
        splits: paths of each split, as written.
        keypoint_shape: points an object and numbers a point that follow the box on a line of a key-point data set.
        keypoint_flip: position that each point takes in a mirrored picture, -1 for what is no whole number; None: not
            stated.
        notes: what a user should know about it.
    """

    file: Path
    base: Path
    names: tuple[str, ...]
    splits: dict[str, tuple[str, ...]]
    keypoint_shape: tuple[int, int] | None
    keypoint_flip: tuple[int, ...] | None
    notes: tuple[str, ...]


def read_data_yaml(config: DataConfig) -> DataYaml:
    """Find and read the data.yaml of a data set.

    Raises:
        ConfigError: ``data.root`` is not set.
        DataError: no file or several, not YAML, or keys with values that cannot be used; all problems at once.
    """
    file = _find_yaml(data_root(config))
    document = _load(file)
    problems = Problems(str(file))
    names = _read_names(document, problems)
    splits = _read_splits(document, problems)
    shape = document.get("kpt_shape")
    keypoint_shape = None
    if isinstance(shape, list) and len(shape) == 2 and all(isinstance(value, int) for value in shape):
        keypoint_shape = (int(shape[0]), int(shape[1]))
    flip = document.get("flip_idx") or None
    keypoint_flip = None if flip is None else tuple(i if type(i) is int else -1 for i in _as_list(flip))
    base, notes = _base_folder(file, document.get("path"), problems)
    problems.raise_if_any()
    return DataYaml(file, base, names, splits, keypoint_shape, keypoint_flip, notes)


def list_images(data: DataYaml, config: DataConfig, split: Split) -> tuple[list[str], str]:
    """Absolute image paths of a split, sorted within each folder, and where they come from.

    Raises:
        DataError: the split is not named, or a folder, list or image is missing or empty.
    """
    named: str | None = getattr(config, split)
    if named is not None:
        entries: Sequence[str] = (named,)
        key = f"data.{split}"
    else:
        key = next((k for k in _SPLIT_KEYS[split] if k in data.splits), split)
        entries = data.splits.get(key, ())
        if not entries:
            raise DataError(
                f"{data.file}: no key {split!r}, so the {split} split is unknown; write it there, or "
                f"{naming(split, 'PLACE')} names it; "
                f"its splits: {', '.join(data.splits) or 'none'}"
            )
    images: list[str] = []
    sources: list[str] = []
    for entry in entries:
        place = _locate(data, entry, key)
        sources.append(str(place))
        images += _images_in_folder(place) if place.is_dir() else _images_in_list(place, data)
    if not images:
        kinds = ", ".join(sorted(IMAGE_SUFFIXES))
        raise DataError(f"{some(sources)}: no images for the {split} split; looked for the suffixes {kinds}")
    return list(dict.fromkeys(images)), some(sources)


def label_path(image: str) -> str:
    """Label file of an image: its last folder named ``images`` becomes ``labels``, else it lies beside the image."""
    folder, name = os.path.split(image)
    parts = folder.split(os.sep)
    if "images" in parts:
        last = len(parts) - 1 - parts[::-1].index("images")
        parts[last] = "labels"
    return os.path.join(os.sep.join(parts), os.path.splitext(name)[0] + ".txt")


def _find_yaml(root: Path) -> Path:
    if root.is_file():
        return root
    if (root / "data.yaml").is_file():
        return root / "data.yaml"
    found = sorted([*root.glob("*.yaml"), *root.glob("*.yml")])
    if len(found) == 1:
        return found[0]
    if found:
        names = some(path.name for path in found)
        raise DataError(f"{root}: several YAML files and none is data.yaml: {names}; data.root=FILE picks one")
    hint = "; there are COCO annotations: data=coco reads them" if any(root.glob("annotations/*.json")) else ""
    raise DataError(f"{root}: no data.yaml (names of the classes, paths of the splits); data.root=FILE names one{hint}")


def _load(file: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise DataError(f"{file}: not YAML: {error.problem}{line}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: not YAML: {error}") from None
    except OSError as error:
        raise DataError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    if not isinstance(document, dict):
        raise DataError(f"{file}: keys and values are needed (names, train, val), it holds {type(document).__name__}")
    return document


def _read_names(document: dict[str, Any], problems: Problems) -> tuple[str, ...]:
    names = document.get("names")
    if isinstance(names, dict):
        expected = range(len(names))
        if sorted(names, key=str) != sorted(expected, key=str):
            shown = some(repr(key) for key in names)
            problems.add(f"names: its keys are {shown}; the whole numbers 0 to {len(names) - 1} are needed")
            return ()
        names = [names[i] for i in expected]
    if not isinstance(names, list) or not names:
        problems.add(f"names is {names!r}; a list of class names, or a mapping from 0, 1, ... to names, is needed")
        return ()
    for position, name in enumerate(names):
        if isinstance(name, bool) or not isinstance(name, str | int | float):
            problems.add(f"names: class {position} is {name!r}, which is no text; in quotes, any word is one")
    count = document.get("nc", len(names))
    if count != len(names):
        problems.add(f"nc is {count!r}, but names has {counted(len(names), 'entry', 'entries')}")
    return tuple(str(name) for name in names)


def _read_splits(document: dict[str, Any], problems: Problems) -> dict[str, tuple[str, ...]]:
    splits: dict[str, tuple[str, ...]] = {}
    for key in (key for keys in _SPLIT_KEYS.values() for key in keys):
        value = document.get(key)
        if value is None:
            continue
        entries = value if isinstance(value, list) else [value]
        if all(isinstance(entry, str) and entry for entry in entries):
            splits[key] = tuple(entries)
        elif key != "test":
            problems.add(f"{key} is {value!r}; a folder, a .txt list, or a list of those is needed")
    return splits


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _base_folder(file: Path, path: Any, problems: Problems) -> tuple[Path, tuple[str, ...]]:
    """Folder that ``path`` names; a path of another machine gives way to the folder of the file, with a note."""
    here = file.parent.absolute()
    if path is None or path == "":
        return here, ()
    if not isinstance(path, str):
        problems.add(f"path is {path!r}; a folder is needed")
        return here, ()
    base = here / Path(path).expanduser()
    if base.is_dir():
        return base, ()
    return here, (f"{file}: path {path} does not exist; the folder of the file is used instead",)


def _locate(data: DataYaml, entry: str, key: str) -> Path:
    """Folder or list that an entry names; ``../`` in front is tried without too, as some exports write one too many."""
    given = Path(entry).expanduser()
    tried = [data.base / given, data.file.parent.absolute() / given]
    if key.startswith("data."):
        tried.append(given.absolute())
    if given.parts[:1] == ("..",):
        tried.append(data.base / Path(*given.parts[1:]))
    tried = list(dict.fromkeys(Path(os.path.normpath(path)) for path in tried))
    for path in tried:
        if path.exists():
            return path
    where = f"{key}={entry}" if key.startswith("data.") else f"{data.file}: {key}: {entry}"
    raise DataError(f"{where}: not found; looked for {' and '.join(map(str, tried))}")


def _images_in_folder(folder: Path) -> list[str]:
    images = []
    for parent, folders, names in os.walk(folder):
        folders.sort()
        images += [os.path.join(parent, n) for n in sorted(names) if os.path.splitext(n)[1].lower() in IMAGE_SUFFIXES]
    return images


def _images_in_list(file: Path, data: DataYaml) -> list[str]:
    """Images of a text file, one path a line, relative to the file or to the base folder."""
    if file.suffix.lower() != ".txt":
        raise DataError(f"{file}: neither a folder nor a .txt list of images")
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines()]
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 text: {error.reason} at byte {error.start}") from None
    images, problems = [], Problems(str(file))
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        tried = [os.path.normpath(folder / line.replace("\\", "/")) for folder in (file.parent, data.base)]
        found = next((path for path in tried if os.path.isfile(path)), None)
        if found is None:
            problems.add(f"line {number}: image {line} not found; looked for {' and '.join(dict.fromkeys(tried))}")
        else:
            images.append(found)
    problems.raise_if_any()
    return images
