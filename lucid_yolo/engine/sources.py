"""What a prediction can be asked for: a picture, a folder, a pattern, or pixels."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.config.errors import DataError
from lucid_yolo.config.paths import resolve_user_path

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})


def list_sources(source: Any) -> list[tuple[str, NDArray[np.uint8] | None]]:
    """List what a source means.

    Args:
        source: path, folder, glob pattern, (H, W, 3) uint8 RGB pixels, or a list or tuple of these.

    Returns:
        A name for each picture, and its pixels where they came from memory.

    Raises:
        DataError: nothing is there, or an array is no picture.
    """
    sources: Sequence[Any] = source if isinstance(source, (list, tuple)) else [source]
    found: list[tuple[str, NDArray[np.uint8] | None]] = []
    for position, one in enumerate(sources):
        if isinstance(one, np.ndarray):
            found.append((f"array_{position}", check_pixels(one)))
        elif isinstance(one, (str, Path)):
            found += [(str(path), None) for path in find_pictures(one)]
        else:
            raise DataError(
                f"source: a {type(one).__name__} is no picture; give a path, a folder, a pattern or an array."
            )
    return found


def find_pictures(source: str | Path) -> list[Path]:
    """List the pictures that a path, a folder or a glob pattern means, sorted.

    Raises:
        DataError: nothing is there.
    """
    path = resolve_user_path(str(source))
    if path.is_file():
        return [path]
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix.lower() in SUFFIXES)
        if not found:
            raise DataError(
                f"source={source}: no picture in that folder (known suffixes: {', '.join(sorted(SUFFIXES))})."
            )
        return found
    if glob.has_magic(str(source)):
        found = sorted(Path(p) for p in glob.glob(str(path), recursive=True) if Path(p).is_file())
        if not found:
            raise DataError(f"source={source}: the pattern matches no file.")
        return found
    raise DataError(f"source={source}: no such file or folder.")


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
