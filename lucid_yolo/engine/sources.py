"""What a prediction can be asked for: a picture, a folder, a pattern, or pixels."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.config.errors import DataError
from lucid_yolo.config.paths import resolve_user_path

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})


@dataclass(frozen=True, slots=True)
class Source:
    """One picture to look at.

    Attributes:
        name: file, or a made-up name for pixels from memory.
        pixels: (H, W, 3) uint8 RGB where they came from memory, else None.
        listed: whether a folder or a pattern brought it, rather than its own name.
    """

    name: str
    pixels: NDArray[np.uint8] | None = None
    listed: bool = False


def list_sources(source: Any) -> list[Source]:
    """List what a source means.

    Args:
        source: path, folder, glob pattern, (H, W, 3) uint8 RGB pixels, or a list or tuple of these.

    Raises:
        DataError: nothing is there, or an array is no picture.
    """
    sources: Sequence[Any] = source if isinstance(source, (list, tuple)) else [source]
    found: list[Source] = []
    for position, one in enumerate(sources):
        if isinstance(one, np.ndarray):
            found.append(Source(f"array_{position}", pixels=check_pixels(one)))
        elif isinstance(one, (str, Path)):
            found += find_pictures(str(one))
        else:
            raise DataError(
                f"source: an object of type {type(one).__name__} is no picture; "
                "give a path, a folder, a pattern or an array."
            )
    return found


def find_pictures(source: str) -> list[Source]:
    """List the pictures that a path, a folder or a glob pattern means, sorted.

    Raises:
        DataError: nothing is there.
    """
    if not source.strip():
        raise DataError("source is empty; give a path, a folder, a pattern or an array.")
    path = resolve_user_path(source)
    if path.is_file():
        return [Source(str(path))]
    if path.is_dir():
        found = sorted(str(p) for p in path.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())
        if not found:
            raise DataError(
                f"source={source}: no picture in that folder (known suffixes: {', '.join(sorted(SUFFIXES))}). "
                f"A pattern such as {source}/**/*.jpg looks into folders below."
            )
    elif glob.has_magic(source):
        found = sorted(p for p in glob.glob(_pattern(path), recursive=True) if Path(p).is_file())
        if not found:
            raise DataError(f"source={source}: the pattern matches no file.")
    elif "://" in source:
        raise DataError(f"source={source}: addresses are not downloaded; give a file or a folder.")
    else:
        raise DataError(f"source={source}: no such file or folder.")
    return [Source(name, listed=True) for name in found]


def check_pixels(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Accept an (H, W, 3) uint8 RGB picture.

    Raises:
        DataError: another shape or type.
    """
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
        raise DataError(
            f"source: an array of shape {pixels.shape} and type {pixels.dtype} was given; "
            "a picture is (height, width, 3) uint8 RGB."
        )
    return np.ascontiguousarray(pixels)


def _pattern(path: Path) -> str:
    """Keep the folders that exist as they are written: their names may hold brackets."""
    existing = next(parent for parent in path.parents if parent.is_dir())
    return str(Path(glob.escape(str(existing))) / path.relative_to(existing))
