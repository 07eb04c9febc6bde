"""Where a COCO data set keeps its files: the common layouts, found without configuration.

What is found twice is an error that lists both and names the key that decides, and so is what is not found at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from lucid_yolo.config.errors import ConfigError, DataError
from lucid_yolo.config.schema import DataConfig
from lucid_yolo.data.labels.base import LabelKind
from lucid_yolo.data.readers.problems import some
from lucid_yolo.data.readers.settings import Split, data_root, named_path, naming

SPLIT_NAMES: dict[Split, tuple[str, ...]] = {
    "train": ("train",),
    "val": ("val", "valid", "validation"),
    "test": ("test",),
}

_YEAR = "20[0-9][0-9]"
_ANNOTATIONS = (
    "*/instances_{split}.json",
    f"*/instances_{{split}}{_YEAR}.json",
    "instances_{split}.json",
    f"instances_{{split}}{_YEAR}.json",
    "annotations/{split}.json",
    f"annotations/{{split}}{_YEAR}.json",
    "{split}.json",
    "{split}/_annotations.coco.json",
    "{split}/annotations.json",
    "{split}/labels.json",
)
_USUAL = "instances_"
_OWN_FILES = {LabelKind.KEYPOINTS: "person_keypoints_"}  # kinds of label that COCO keeps in files of their own
_IMAGES = ("{split}", "images/{split}", "{split}/images", "{split}/data", "images", "JPEGImages", "data", ".")
_PROBES = 16  # image names that are looked for in a folder


def find_annotations(config: DataConfig, split: Split, labels: LabelKind = LabelKind.BOXES) -> Path:
    """The annotation file of a split; one that is named after the kind of label goes before the others.

    Raises:
        ConfigError: neither a root nor the file is configured.
        DataError: no file is found, or more than one.
    """
    named: str | None = getattr(config, split)
    if named is not None:
        path = named_path(f"data.{split}", named, Path() if config.root is None else data_root(config))
        if path.is_dir():
            raise DataError(f"data.{split}={named}: {path} is a folder; a COCO annotation file (JSON) is needed")
        return path.absolute()
    root = data_root(config)
    if not root.is_dir():
        raise DataError(f"data.root: {root} is a file; data=coco needs the folder ({naming(split, 'FILE')} names one)")
    found = _annotation_files(root, split, labels)
    if len(found) > 1:
        raise DataError(f"{root}: several annotation files for the {split} split: {_list(found, root)}; {_pick(split)}")
    if not found:
        shown = _patterns(split)[: len(_ANNOTATIONS)]
        hint = "; there is a data.yaml: data=yolo reads it" if (root / "data.yaml").is_file() else ""
        raise DataError(
            f"{root}: no annotation file for the {split} split; looked for {', '.join(shown)} "
            f"with the names {', '.join(SPLIT_NAMES[split])}; "
            f"{its_splits(config, lambda one: bool(_annotation_files(root, one, labels)))}; {_pick(split)}{hint}"
        )
    return found[0]


def its_splits(config: DataConfig, is_there: Callable[[Split], bool]) -> str:
    """Which splits a data set has, for a message about one that it lacks.

    Args:
        config: names some of them.
        is_there: whether the layout has one.
    """
    found = [split for split in SPLIT_NAMES if getattr(config, split) is not None or is_there(split)]
    return f"its splits: {', '.join(found) or 'none'}"


def find_images(config: DataConfig, split: Split, annotations: Path, file_names: Sequence[str]) -> Path:
    """The folder that the file names of an annotation file are relative to.

    Args:
        config: data settings.
        split: "train", "val" or "test".
        annotations: the annotation file.
        file_names: image names in it.

    Raises:
        DataError: no folder has any of the images, or several have them all.
    """
    named: str | None = getattr(config, f"{split}_images")
    root = annotations.parent if config.root is None else data_root(config)
    if named is not None:
        folder = named_path(f"data.{split}_images", named, root)
        if not folder.is_dir():
            raise DataError(f"data.{split}_images={named}: {folder} is not a folder")
        return folder.absolute()
    probes = file_names[:: max(1, len(file_names) // _PROBES)]
    if all(os.path.isabs(name) for name in probes):
        return root
    candidates = _image_folders(root, split, annotations)
    hits = {folder: sum((folder / name).is_file() for name in probes) for folder in candidates}
    best = max(hits.values(), default=0)
    if best == 0:
        raise DataError(
            f"{annotations}: none of its images was found, for example {probes[0]}; looked in "
            f"{_list(candidates, root)} of {root}; {naming(split, 'FOLDER', suffix='_images')} picks the folder"
        )
    chosen = [folder for folder, count in hits.items() if count == best]
    if len(chosen) > 1:
        raise DataError(
            f"{annotations}: its images are in several folders: {_list(chosen, root)} of {root}; "
            f"{naming(split, 'FOLDER', suffix='_images')} picks one"
        )
    return chosen[0]


def refuse_image_keys(config: DataConfig) -> None:
    """Refuse ``data.train_images`` and its like for a format that has no use for them.

    Raises:
        ConfigError: one of them is set.
    """
    keys = [key for split in SPLIT_NAMES if getattr(config, key := f"{split}_images") is not None]
    if keys:
        raise ConfigError([f"data.{key}: data={config.format} has no use for this key; leave it out" for key in keys])


def _patterns(split: Split) -> list[str]:
    return [pattern.format(split=name) for name in SPLIT_NAMES[split] for pattern in _ANNOTATIONS]


def _annotation_files(root: Path, split: Split, labels: LabelKind) -> list[Path]:
    patterns = _patterns(split)
    own = [p.replace(_USUAL, _OWN_FILES[labels]) for p in patterns if _USUAL in p] if labels in _OWN_FILES else []
    return _found(root, own) or _found(root, patterns)


def _image_folders(root: Path, split: Split, annotations: Path) -> list[Path]:
    year = annotations.stem
    for prefix in (_USUAL, *_OWN_FILES.values()):
        year = year.removeprefix(prefix)
    names = list(dict.fromkeys((*SPLIT_NAMES[split], year)))
    relative = [pattern.format(split=name) for name in names for pattern in _IMAGES]
    folders = [annotations.parent, annotations.parent / "images", annotations.parent / "data"]
    folders += [root / text for text in relative]
    return _distinct(folder for folder in folders if folder.is_dir())


def _found(root: Path, patterns: Sequence[str]) -> list[Path]:
    return _distinct(path for pattern in patterns for path in sorted(root.glob(pattern)))


def _distinct(paths: Iterable[Path]) -> list[Path]:
    """Paths in order, without those that are the same file by another name."""
    return list({os.path.realpath(path): path.absolute() for path in paths}.values())


def _list(paths: Sequence[Path], root: Path) -> str:
    return some((p.relative_to(root) if p.is_relative_to(root) else p for p in paths), shown=12)


def _pick(split: Split) -> str:
    return f"{naming(split, 'FILE')} picks one"
