"""Tiles of large pictures to learn from: cut once into the user's cache directory, found there by every later run.

A tile's name carries the place, time and length of its picture's file, so a picture that changes is cut again. Every
tile is written under another name and then renamed: it is whole or absent, also when two processes cut at once.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np

from lucid_yolo.config.errors import ConfigError, DataError
from lucid_yolo.config.paths import CACHE_VARIABLE, cache_directory
from lucid_yolo.config.schema import BadImages, DataConfig, ExifOrientation
from lucid_yolo.config.verbs import OVERLAP
from lucid_yolo.data.image import image_size, read_image
from lucid_yolo.data.readers.oriented import LabelledImage, OrientedObject
from lucid_yolo.data.readers.problems import Problems
from lucid_yolo.ops.rotated_iou import area_inside
from lucid_yolo.ops.rotated_np import corners, from_corners
from lucid_yolo.ops.tiling import Window, windows

TILE_OPTIONS = ("tile", "overlap")
"""Keys of ``data.options`` that :func:`tile_rule` reads."""

_VERSION = 1  # raise it whenever the bytes of a tile change
_JPEG_QUALITY = 95
_THREADS = 4  # each holds a decoded picture, which may have a gigabyte
_LEAST_SEEN = 0.1  # share of an object below which a tile does not have it
_WHOLE = 0.7  # share below which it need not be found there


@dataclass(frozen=True, slots=True)
class TileRule:
    """How pictures are cut.

    Attributes:
        size: side of a tile in pixels; a picture that is not larger stays as it is.
        overlap: least overlap of neighbours in pixels.
    """

    size: int
    overlap: int


def tile_rule(config: DataConfig) -> TileRule | None:
    """Read ``data.options.tile`` and ``data.options.overlap`` (null: 200); None where pictures are not cut.

    Raises:
        ConfigError: values out of range.
    """
    size, overlap = config.options.get("tile"), config.options.get("overlap")
    if size is None:
        return None
    if overlap is None:
        overlap = OVERLAP
    if type(size) is not int or size < 32:
        raise ConfigError([f"data.options.tile={size!r}: a whole number of pixels, at least 32, is needed"])
    if type(overlap) is not int or not 0 <= overlap < size:
        raise ConfigError([f"data.options.overlap={overlap!r}: a whole number from 0 to {size - 1} is needed"])
    return TileRule(size, overlap)


def idle_note(config: DataConfig) -> str | None:
    """Name a setting of tiles where pictures are not cut; None where there is none."""
    overlap = config.options.get("overlap")
    if overlap is None or config.options.get("tile") is not None:
        return None
    return (
        f"data.options.overlap={overlap} does nothing: it is of tiles, and there are none; set "
        "data.options.tile=PIXELS too, or leave it out"
    )


def cut(
    images: Sequence[LabelledImage], rule: TileRule, config: DataConfig, problems: Problems
) -> tuple[list[LabelledImage], str]:
    """Cut the pictures that are larger than a tile.

    An object belongs to each tile that shows a tenth of it, with all its corners; it is difficult where less than 0.7
    of it is seen.

    Args:
        images: with their objects.
        rule: size and overlap.
        config: the EXIF rule, and what happens to images that cannot be read.
        problems: of the split.

    Returns:
        Tiles, and pictures that needed none, in order; and a note about them.

    Raises:
        DataError: the cache directory cannot be written.
    """
    folder = cache_directory() / f"tiles-v{_VERSION}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(_THREADS) as pool:
            cut_up = list(pool.map(lambda one: _tiles_or_problem(one, rule, config, folder), images))
    except OSError as error:
        raise DataError(
            f"tiles cannot be written to {folder}: {(error.strerror or str(error)).lower()}; "
            f"set the environment variable {CACHE_VARIABLE} to a folder that can be written"
        ) from None
    result: list[LabelledImage] = []
    for one, tiles in zip(images, cut_up, strict=True):
        if not isinstance(tiles, DataError):
            result += tiles
            continue
        result.append(one)
        if config.bad_images is BadImages.RAISE:
            problems.add(str(tiles))
    if len(result) == len(images):
        return result, f"no image is larger than data.options.tile={rule.size}, so none was cut into tiles"
    return result, f"{len(images)} images give {len(result)} tiles of up to {rule.size} pixels, kept in {folder}"


def _tiles_or_problem(
    one: LabelledImage, rule: TileRule, config: DataConfig, folder: Path
) -> list[LabelledImage] | DataError:
    """The tiles of a picture; the picture itself where that is small, or has no size (which is named elsewhere)."""
    try:
        width, height = image_size(one.image, exif=config.exif_orientation)
    except DataError:
        return [one]
    cover = windows(width, height, rule.size, rule.overlap)
    try:
        return [one] if len(cover) == 1 else _tiles(one, cover, config.exif_orientation, folder)
    except DataError as error:
        return error


def _tiles(one: LabelledImage, cover: Sequence[Window], exif: ExifOrientation, folder: Path) -> list[LabelledImage]:
    stat = os.stat(one.image)
    text = "|".join(map(str, (os.path.abspath(one.image), stat.st_mtime_ns, stat.st_size, exif.value)))
    name = f"{Path(one.image).stem}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    files = [folder / f"{name}-{w.x}-{w.y}-{w.width}x{w.height}.jpg" for w in cover]
    if not all(file.is_file() for file in files):
        picture = read_image(one.image, exif=exif)
        for file, window in zip(files, cover, strict=True):
            _, data = cv2.imencode(".jpg", window.crop(picture)[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
            _publish(file, data.tobytes())
    return [
        replace(one, image=str(file), objects=_seen(one.objects, window), size=None)
        for file, window in zip(files, cover, strict=True)
    ]


def _publish(file: Path, data: bytes) -> None:
    descriptor, draft = tempfile.mkstemp(prefix=".", suffix=file.suffix, dir=file.parent)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
    os.replace(draft, file)


def _seen(objects: Sequence[OrientedObject], window: Window) -> tuple[OrientedObject, ...]:
    """Objects of a tile, in its own coordinates."""
    if not objects:
        return ()
    offset = np.array([window.x, window.y])
    half = np.array([window.width / 2, window.height / 2])
    moved = np.array([one.corners for one in objects]).reshape(-1, 4, 2) - offset
    rotated = from_corners(moved)
    inside = np.abs(area_inside(corners(rotated) - half, half[:1], half[1:]))
    area = rotated[:, 2:4].prod(axis=1)
    share = np.divide(inside, area, out=np.zeros_like(area), where=area > 0)
    return tuple(
        replace(one, corners=tuple(place.ravel().tolist()), difficult=one.difficult or bool(part < _WHOLE))
        for one, place, part in zip(objects, moved, share, strict=True)
        if part >= _LEAST_SEEN
    )
