"""Sizes of many pictures from their headers, and whether a label file agrees with them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.config.errors import DataError
from lucid_yolo.config.schema import BadImages, DataConfig, ExifOrientation
from lucid_yolo.data.image import image_header
from lucid_yolo.data.image_header import ImageHeader
from lucid_yolo.data.readers.problems import Problems, counted, some

_THREADS = 16  # waiting for a file system, not computing


def read_headers(paths: Sequence[str]) -> list[ImageHeader | DataError]:
    """Header of each image, or the error that says why it cannot be read."""
    if len(paths) < 2 * _THREADS:
        return [_header_or_error(path) for path in paths]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(_header_or_error, paths, chunksize=64))


def missing_files(paths: Sequence[str]) -> list[str]:
    """Those of the paths that do not exist; each folder is listed once, which is cheaper than asking for each file."""
    listed: dict[str, frozenset[str]] = {}
    missing = []
    for path in paths:
        folder, name = os.path.split(path)
        if folder not in listed:
            listed[folder] = frozenset(os.listdir(folder)) if os.path.isdir(folder) else frozenset()
        if name not in listed[folder] and not os.path.exists(path):  # the second asks a case-insensitive file system
            missing.append(path)
    return missing


def size_conflict(declared: tuple[int, int], header: ImageHeader, exif: ExifOrientation) -> str | None:
    """Sentence about labels that state another size than the picture has under the EXIF rule; None if they agree."""
    displayed = header.size(ExifOrientation.APPLY)
    stored = header.size(ExifOrientation.IGNORE)
    if declared == header.size(exif):
        return None
    says = f"the labels say {declared[0]}x{declared[1]}"
    if stored == displayed:
        return f"{says}, the file has {stored[0]}x{stored[1]} pixels"
    both = f"stored as {stored[0]}x{stored[1]} and displayed as {displayed[0]}x{displayed[1]}"
    text = f"{says}, the file is {both} (EXIF orientation {header.orientation})"
    if declared == stored:
        return f"{text}; they agree with the stored size: data.exif_orientation=ignore fits these labels"
    if declared == displayed:
        return f"{text}; they agree with the displayed size: data.exif_orientation=apply fits these labels"
    return f"{text}; they agree with neither"


def displayed_sizes(
    images: Sequence[str], config: DataConfig, problems: Problems
) -> tuple[NDArray[np.int32], set[int], list[str]]:
    """Read the sizes of images under the EXIF rule.

    Args:
        images: files.
        config: the rule, and whether an image that cannot be read is a problem.
        problems: of the split.

    Returns:
        (N, 2) width and height, positions of images with an unreadable header, and notes.
    """
    sizes = np.full((len(images), 2), config.image_size, np.int32)
    unreadable: set[int] = set()
    for i, header in enumerate(read_headers(images)):
        if isinstance(header, DataError):
            unreadable.add(i)
            if config.bad_images is BadImages.RAISE:
                problems.add(str(header))
        else:
            sizes[i] = header.size(config.exif_orientation)
    if not unreadable:
        return sizes, unreadable, []
    if config.bad_images is BadImages.RAISE:
        problems.hint("data.bad_images=skip uses empty pictures instead of images that cannot be read.")
    names = some(images[i] for i in sorted(unreadable))
    return (
        sizes,
        unreadable,
        [f"{counted(len(unreadable), 'image')} cannot be read and count as empty pictures: {names}"],
    )


def _header_or_error(path: str) -> ImageHeader | DataError:
    try:
        return image_header(path)
    except DataError as error:
        return error
