"""Readers: one module a data format, each with ``read(config, split, labels) -> SplitIndex``."""

from __future__ import annotations

import pkgutil
from dataclasses import replace
from importlib import import_module
from typing import cast

from lucid_yolo.config.errors import ConfigError, DataError
from lucid_yolo.config.schema import DataConfig
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.keypoint_settings import with_keypoints
from lucid_yolo.data.labels.base import LabelKind
from lucid_yolo.data.readers.layout import SPLIT_NAMES
from lucid_yolo.data.readers.matching import class_mismatch, keypoint_mismatch, shared_images
from lucid_yolo.data.readers.settings import SPLITS, Split, data_root, lasting_path

_SHARED_MODULES = {"columns", "layout", "matching", "parsers", "problems", "settings", "sizes"}  # of all formats
_SHARED_MODULES |= {"oriented", "tiles", "xml_lines", "yolo_files"}  # of some


def formats() -> tuple[str, ...]:
    """Names of the data formats, as ``data.format`` takes them."""
    return tuple(sorted({m.name for m in pkgutil.iter_modules(__path__)} - _SHARED_MODULES))


def read_split(config: DataConfig, split: Split, labels: LabelKind = LabelKind.BOXES) -> SplitIndex:
    """Read one split.

    Args:
        config: where it is.
        split: which one.
        labels: what is read of an object beside its box and class.

    Raises:
        ConfigError: unknown format, or settings that the format does not have.
        DataError: files or labels that cannot be used.
    """
    if config.format not in formats():
        raise ConfigError([f"data.format={config.format}: no such reader; allowed: {', '.join(formats())}"])
    reader = import_module(f"{__name__}.{config.format}")
    index = cast(SplitIndex, reader.read(config, split, labels))
    if labels is LabelKind.KEYPOINTS and index.keypoints is None:
        raise DataError(
            f"data.format={config.format} has no key points, which task=keypoints needs; data=coco, data=yolo and "
            "data=shapes have them"
        )
    return index if index.keypoints is None else with_keypoints(index, index.keypoints)


def with_lasting_places(config: DataConfig) -> DataConfig:
    """The same data from any working directory, for a run that is continued and a checkpoint that is loaded elsewhere.

    Args:
        config: of data that could be read.
    """
    if config.root is None:
        return config
    root = data_root(config)
    found = replace(config, root=str(root))
    named = [key for split in SPLIT_NAMES for key in (split, f"{split}_images") if getattr(config, key) is not None]
    if named:
        reader = import_module(f"{__name__}.{config.format}")
        folders = reader.folders(config) if hasattr(reader, "folders") else (root,)
        for key in named:
            setattr(found, key, lasting_path(getattr(config, key), folders))
    return found


def read_splits(config: DataConfig, labels: LabelKind = LabelKind.BOXES) -> tuple[SplitIndex, SplitIndex]:
    """Read the training and the validation split and check that they belong together.

    Raises:
        ConfigError: as :func:`read_split`.
        DataError: as :func:`read_split`, or the splits have different classes or key points.
    """
    train, val = (read_split(config, split, labels) for split in SPLITS)
    for problem in (*class_mismatch(train, val), *keypoint_mismatch(train, val)):
        raise DataError(problem)
    return train, replace(val, notes=val.notes + shared_images(train, val))
