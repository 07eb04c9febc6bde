"""Readers: one module a data format, each with ``read(config, split) -> SplitIndex``."""

from __future__ import annotations

import os
import pkgutil
from dataclasses import replace
from importlib import import_module
from typing import cast

from lucid_yolo.config.errors import ConfigError, DataError
from lucid_yolo.config.schema import DataConfig
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.readers.problems import counted, some
from lucid_yolo.data.readers.settings import SPLITS, Split

_SHARED_MODULES = frozenset({"columns", "layout", "problems", "settings", "sizes"})


def formats() -> tuple[str, ...]:
    """Names of the data formats, as ``data.format`` takes them."""
    return tuple(sorted({m.name for m in pkgutil.iter_modules(__path__)} - _SHARED_MODULES))


def read_split(config: DataConfig, split: Split) -> SplitIndex:
    """Read one split.

    Raises:
        ConfigError: unknown format, or settings that the format does not have.
        DataError: files or labels that cannot be used.
    """
    if config.format not in formats():
        raise ConfigError([f"data.format={config.format}: no such reader; allowed: {', '.join(formats())}"])
    reader = import_module(f"{__name__}.{config.format}")
    return cast(SplitIndex, reader.read(config, split))


def read_splits(config: DataConfig) -> tuple[SplitIndex, SplitIndex]:
    """Read the training and the validation split and check that they belong together.

    Raises:
        ConfigError: as :func:`read_split`.
        DataError: as :func:`read_split`, or the splits have different classes.
    """
    train, val = (read_split(config, split) for split in SPLITS)
    _check_classes(train, val)
    return train, replace(val, notes=val.notes + _shared_images(train, val))


def _check_classes(train: SplitIndex, val: SplitIndex) -> None:
    pairs = [set(zip(split.category_ids, split.class_names, strict=True)) for split in (train, val)]
    if pairs[0] == pairs[1]:
        return
    only = [some(f"{i} {name!r}" for i, name in sorted(pairs[a] - pairs[b])) or "none" for a, b in ((0, 1), (1, 0))]
    raise DataError(
        f"the splits have different classes: only in {train.source}: {only[0]}; only in {val.source}: {only[1]}; "
        f"both splits need the same list of ids and names"
    )


def _shared_images(train: SplitIndex, val: SplitIndex) -> tuple[str, ...]:
    shared = set(map(os.path.realpath, train.paths)) & set(map(os.path.realpath, val.paths))
    if not shared:
        return ()
    names = some(sorted(map(os.path.basename, shared)))
    return (f"{counted(len(shared), 'image')} also in the training split, so the score says too much: {names}",)
