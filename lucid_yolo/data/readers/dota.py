"""DOTA labels (arXiv 1711.10398): one text file an image, each line ``x1 y1 x2 y2 x3 y3 x4 y4 category difficult``.

Lines ``imagesource:...`` and ``gsd:...`` may stand above the objects. An image belongs to a split if it has a label
file there; an empty one makes it a background.
"""

from __future__ import annotations

import math
from pathlib import Path

from lucid_yolo.config.errors import DataError
from lucid_yolo.config.schema import DataConfig
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import LabelKind
from lucid_yolo.data.readers.layout import SPLIT_NAMES, its_splits
from lucid_yolo.data.readers.oriented import (
    CLASS_OPTIONS,
    LabelledImage,
    OrientedObject,
    build_split,
    find_classes,
    pair_images,
)
from lucid_yolo.data.readers.parsers.base import FARTHEST, is_place
from lucid_yolo.data.readers.problems import Problems, some
from lucid_yolo.data.readers.settings import SPLITS, Split, check_options, data_root, named_path, naming
from lucid_yolo.data.readers.tiles import TILE_OPTIONS, cut, idle_note, tile_rule

_LABELS = ("{split}/labelTxt*", "{split}/annfiles", "labelTxt*/{split}")
_IMAGES = ("{split}/images", "images/{split}")
_HEADERS = ("imagesource:", "gsd:")
_FIELDS = "x1 y1 x2 y2 x3 y3 x4 y4 category difficult"


def read(config: DataConfig, split: Split, labels: LabelKind) -> SplitIndex:
    """Read one split; ``data.options``: see ``find_classes`` and ``tile_rule``.

    Raises:
        ConfigError: a setting that this format does not have.
        DataError: files not found or ambiguous, or labels that cannot be used; all problems of a split at once.
    """
    check_options(config, allowed=(*CLASS_OPTIONS, *TILE_OPTIONS))
    rule = tile_rule(config)
    folder = _label_folder(config, split)
    files = _label_files(folder)
    paths = pair_images(files, _image_folder(config, split, folder), split)
    problems = Problems(str(folder))
    images = [
        LabelledImage(path, str(file), _read_objects(file, problems)) for path, file in zip(paths, files, strict=True)
    ]
    seen = {found.name for one in images for found in one.objects}
    if not config.options.get("classes"):
        seen |= {name for other in SPLITS if other != split for name in _names(config, other)}
    classes = find_classes(config, seen, problems)
    notes = [note for note in (idle_note(config),) if note is not None]
    if rule is not None:
        images, note = cut(images, rule, config, problems)
        notes.append(note)
    return build_split(images, classes, config, split, labels, source=str(folder), problems=problems, notes=notes)


def _names(config: DataConfig, split: Split) -> set[str]:
    """Names of the classes in a split; what is wrong with it is found when it is read itself."""
    unheard = Problems("")
    return {o.name for file in _label_files(_label_folder(config, split)) for o in _read_objects(file, unheard)}


def _label_folder(config: DataConfig, split: Split) -> Path:
    named: str | None = getattr(config, split)
    if named is not None:
        folder = named_path(f"data.{split}", named, Path() if config.root is None else data_root(config))
        if not folder.is_dir():
            raise DataError(f"data.{split}={named}: {folder} is a file; a folder of label files is needed")
        return folder.absolute()
    return _find(data_root(config), split, _LABELS, "folder of label files", config)


def _image_folder(config: DataConfig, split: Split, labels: Path) -> Path:
    named: str | None = getattr(config, f"{split}_images")
    if named is not None:
        folder = named_path(f"data.{split}_images", named, labels.parent if config.root is None else data_root(config))
        if not folder.is_dir():
            raise DataError(f"data.{split}_images={named}: {folder} is not a folder")
        return folder.absolute()
    if (labels.parent / "images").is_dir():
        return labels.parent / "images"
    return _find(data_root(config), split, _IMAGES, "folder of images", config, suffix="_images")


def _find(
    root: Path, split: Split, patterns: tuple[str, ...], what: str, config: DataConfig, *, suffix: str = ""
) -> Path:
    """The one folder that the patterns match.

    Raises:
        DataError: there is none, or several.
    """
    wanted, key = _wanted(split, patterns), naming(split, "FOLDER", suffix=suffix)
    found = _folders(root, wanted)
    if len(found) > 1:
        names = some(path.relative_to(root) for path in found)
        raise DataError(f"{root}: several times a {what} for the {split} split: {names}; {key} picks one")
    if not found:
        there = its_splits(config, lambda one: bool(_folders(root, _wanted(one, _LABELS))))
        raise DataError(
            f"{root}: no {what} for the {split} split; looked for {', '.join(wanted)}; {there}; {key} names one"
        )
    return found[0].absolute()


def _wanted(split: Split, patterns: tuple[str, ...]) -> list[str]:
    return [pattern.format(split=name) for name in SPLIT_NAMES[split] for pattern in patterns]


def _folders(root: Path, patterns: list[str]) -> list[Path]:
    return [path for pattern in patterns for path in sorted(root.glob(pattern)) if path.is_dir()]


def _label_files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise DataError(f"{folder}: no label files (*.txt)")
    return files


def _read_objects(file: Path, problems: Problems) -> tuple[OrientedObject, ...]:
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        problems.add(f"{file}: cannot be read: {error}")
        return ()
    objects: list[OrientedObject] = []
    started = False
    for number, line in enumerate(lines, 1):
        if not line.strip() or (not started and line.lower().startswith(_HEADERS)):
            continue
        started = True
        try:
            objects.append(_read_line(line.split(), number))
        except ValueError as error:
            problems.add(f"{file} line {number}: {error}")
    return tuple(objects)


def _read_line(fields: list[str], number: int) -> OrientedObject:
    """One object; a line without ``difficult`` is not difficult.

    Raises:
        ValueError: what is wrong with it.
    """
    if len(fields) not in (9, 10):
        raise ValueError(f"{len(fields)} fields; allowed: 10 ({_FIELDS}), or 9 without difficult")
    corners = tuple(map(_number, fields[:8]))
    difficult = fields[9] if len(fields) == 10 else "0"
    if difficult not in ("0", "1"):
        raise ValueError(f"difficult is {difficult!r}; allowed: 0 and 1 (a category is one word)")
    return OrientedObject(number, fields[8], corners, difficult == "1")


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not is_place(value):
        raise ValueError(f"coordinate {text!r}; a finite number in pixels is needed, not beyond {FARTHEST}")
    return value
