"""What every reader asks of the configuration."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from lucid_yolo.config.errors import ConfigError, DataError
from lucid_yolo.config.paths import resolve_user_path
from lucid_yolo.config.schema import DataConfig

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, Split] = ("train", "val")  # of a run


def check_options(config: DataConfig, *, allowed: Collection[str]) -> None:
    """Refuse keys of ``data.options`` that the reader does not have.

    Raises:
        ConfigError: one problem for each unknown key.
    """
    problems = []
    for key in config.options:
        if key in allowed:
            continue
        near = get_close_matches(str(key), allowed, n=1)
        what = f"allowed: {', '.join(sorted(allowed))}" if allowed else "it has no options"
        if near:
            what = f"did you mean {near[0]!r}? {what}"
        problems.append(f"data.options.{key}: the reader {config.format!r} does not know this option; {what}")
    if problems:
        raise ConfigError(problems)


def data_root(config: DataConfig) -> Path:
    """Folder or file that ``data.root`` names, absolute.

    Raises:
        ConfigError: it is not set.
        DataError: it does not exist.
    """
    if config.root is None:
        raise ConfigError([f"data.root is not set; data={config.format} needs the folder of the data set"])
    root = resolve_user_path(config.root)
    if not root.exists():
        parent = next(p for p in root.parents if p.exists())
        raise DataError(f"data.root: {root} does not exist (its nearest existing parent is {parent})")
    return root


def naming(split: Split, what: str, *, suffix: str = "") -> str:
    """What a user writes to name a place of a split.

    Args:
        split: no run reads a test split, so its places are named to the verb that does.
        what: stands for the value, such as "FILE".
        suffix: of the key, "_images" for pictures.
    """
    return f"data.{split}{suffix}={what}" if split in SPLITS else f"val{suffix}={what} of lucid-yolo validate"


def lasting_path(value: str, folders: Sequence[Path]) -> str:
    """What names the same place as the value of ``data.train`` and its like, from any working directory.

    Args:
        value: relative to the data set or to the working directory, as `named_path` has it.
        folders: of the data set, absolute: where the reader looks first.
    """
    here, place = resolve_user_path(value), Path(value).expanduser()
    return str(here) if here.exists() and not any((folder / place).exists() for folder in folders) else value


def named_path(key: str, value: str, root: Path) -> Path:
    """Path that a key such as ``data.train`` names: relative to the data set, else to the working directory.

    Raises:
        DataError: it exists in neither place.
    """
    tried = list(dict.fromkeys((root / Path(value).expanduser(), resolve_user_path(value))))
    for path in tried:
        if path.exists():
            return path
    raise DataError(f"{key}={value}: not found; looked for {' and '.join(map(str, tried))}")
