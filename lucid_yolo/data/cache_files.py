"""Caches of pictures as files: found by their key, written under a lock, published by one rename.

A file holds the pixels and, behind them, a line of JSON. A name is whole or absent. Files of the same data with another
content are stale: they are removed when no process has them open.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lucid_yolo.config.errors import RunError
from lucid_yolo.config.paths import CACHE_VARIABLE, cache_directory
from lucid_yolo.data.arena import HeldFile


@dataclass(frozen=True, slots=True)
class CacheKey:
    """What a cache holds.

    Attributes:
        subject: digest of the data that it is for and of how it is read.
        content: digest of the state of that data.
    """

    subject: str
    content: str

    @property
    def path(self) -> Path:
        """File of the cache."""
        return _folder() / f"{self.subject}-{self.content}.arena"


def read_problems(key: CacheKey, nbytes: int) -> dict[int, str] | None:
    """Read why images of a cache have no pixels.

    Args:
        key: the cache.
        nbytes: size of its pixels.

    Returns:
        sentences by position; None where there is no cache of that key, or a damaged one.
    """
    try:
        with key.path.open("rb") as file:
            file.seek(nbytes)
            tail = json.loads(file.read())
    except (OSError, ValueError):
        return None
    if not isinstance(tail, dict) or tail.get("content") != key.content:
        return None
    return {int(image): str(problem) for image, problem in tail["problems"].items()}


def open_file(
    key: CacheKey, nbytes: int, build: Callable[[int], dict[int, str]]
) -> tuple[HeldFile, dict[int, str], bool]:
    """Open the file of a cache, written now if there is none; a second process waits for the first one's.

    Args:
        key: the cache.
        nbytes: size of its pixels.
        build: writes the pixels to an open file and says why images have none.

    Returns:
        the open file, its problems, and whether it existed already.

    Raises:
        RunError: the file cannot be written.
    """
    try:
        _folder().mkdir(parents=True, exist_ok=True)
        with _locked(_folder() / f"{key.subject}.lock"):
            problems = read_problems(key, nbytes)
            reused = problems is not None
            if problems is None:
                problems = _write(key, nbytes, build)
            held = _held(key)
            _remove_stale(key)
    except OSError as error:
        raise RunError(
            f"the cache of training pictures ({nbytes / 1024**3:.2f} GiB) cannot be written to {_folder()}: "
            f"{(error.strerror or str(error)).lower()}; set the environment variable {CACHE_VARIABLE} to a folder that "
            "has the room and can be written, or cache=none"
        ) from None
    return held, problems, reused


def _folder() -> Path:
    return cache_directory() / "pictures"


def _write(key: CacheKey, nbytes: int, build: Callable[[int], dict[int, str]]) -> dict[int, str]:
    # One name for all attempts on this data: what a killed process left is written over.
    draft = _folder() / f"{key.subject}.part"
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        problems = build(descriptor)
        tail = json.dumps({"content": key.content, "problems": problems}).encode()
        os.lseek(descriptor, nbytes, os.SEEK_SET)
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(tail)
        os.fsync(descriptor)
        draft.rename(key.path)
    finally:
        os.close(descriptor)
        draft.unlink(missing_ok=True)
    return problems


def _held(key: CacheKey) -> HeldFile:
    """Open a file for reading and mark it as in use."""
    held = HeldFile(os.open(key.path, os.O_RDONLY), str(key.path))
    fcntl.flock(held.descriptor, fcntl.LOCK_SH)
    return held


def _remove_stale(key: CacheKey) -> None:
    """Remove files of the same data with another content, except those in use."""
    for path in _folder().glob(f"{key.subject}-*.arena"):
        if path == key.path:
            continue
        with suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process at a time pass; the lock ends with its process."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
