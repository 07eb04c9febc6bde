"""Caches of training pictures: decoded once, shared by all workers, equal to what the files give.

``decoded`` keeps pixels as they are read; ``prepared`` keeps them scaled to training resolution. Labels stay in the
split's columns. What a cache holds depends on the files, the rules of reading and, prepared, the canvas: a key made
from these says whether a cache that exists can be used again.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from lucid_yolo.config.errors import DataError
from lucid_yolo.config.schema import BadImages, CacheConfig, CacheName, CachePlace, DataConfig
from lucid_yolo.data import cache_files
from lucid_yolo.data.arena import Arena, HeldFile, Layout, fill, layout, memory_file
from lucid_yolo.data.geometry import resized
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.source import FileSource, Picture, Pictures, PictureSource, checked, stand_in, stopping
from lucid_yolo.ops.letterbox import scaled_size

MIB = 1024 * 1024
_VERSION = 1  # raise it whenever the bytes of a cache change


@dataclass(frozen=True, slots=True)
class CachedImages:
    """Pictures of a cache; an `ImageSource`.

    Attributes:
        arena: their pixels.
        problems: why an image has none, by position.
    """

    arena: Arena
    problems: Mapping[int, str]

    def __call__(self, image: int) -> NDArray[np.uint8]:
        """Return a picture.

        Raises:
            DataError: its file could not be used.
        """
        if (problem := self.problems.get(image)) is not None:
            raise DataError(problem)
        return self.arena[image]


class PreparedPictures:
    """Pictures of a cache that are at training resolution already; a `Pictures`.

    Args:
        index: the split.
        config: canvas size, and what to do with unusable images.
        images: the cache.
    """

    def __init__(self, index: SplitIndex, config: DataConfig, images: CachedImages) -> None:
        self._index = index
        self._image_size = config.image_size
        self._bad_images = config.bad_images
        self._images = images

    def __call__(self, image: int) -> Picture:
        """Return one image at training resolution.

        Raises:
            DataError: its file cannot be used and the configuration says to stop.
        """
        try:
            return Picture(self._images(image))
        except DataError as error:
            problem = str(error)
        width, height = self._index.sizes[image].tolist()
        return stand_in(problem, self._bad_images, scaled_size(width, height, self._image_size))


@dataclass(frozen=True, slots=True)
class CacheReport:
    """What opening a cache did.

    Attributes:
        images: pictures in it.
        nbytes: its size.
        seconds: until it could be used.
        reused: it existed already.
        unusable: images that a blank stands in for.
    """

    images: int
    nbytes: int
    seconds: float
    reused: bool
    unusable: int


def cached_shapes(sizes: NDArray[np.integer], kind: CacheName, image_size: int) -> NDArray[np.int64]:
    """Heights and widths of the pictures in a cache.

    Args:
        sizes: (N, 2) width and height of the images.
        kind: decoded or prepared.
        image_size: side of the training canvas.

    Returns:
        (N, 2) height and width; no rows without a cache.
    """
    if kind is CacheName.NONE:
        return np.zeros((0, 2), np.int64)
    kept = sizes.astype(np.int64)
    if kind is CacheName.PREPARED:
        kept = np.array([scaled_size(width, height, image_size) for width, height in sizes.tolist()], np.int64)
    return kept.reshape(-1, 2)[:, ::-1]


def cache_bytes(sizes: NDArray[np.integer], kind: CacheName, image_size: int) -> int:
    """Bytes that a cache takes; see `cached_shapes`. Known before anything is decoded."""
    return int(3 * cached_shapes(sizes, kind, image_size).prod(axis=1).sum())


def cache_key(index: SplitIndex, config: DataConfig, kind: CacheName) -> cache_files.CacheKey:
    """Key of a cache.

    The first part says which data it is for; the second changes with the files' length or time, the classes, the
    labelled sizes, and the versions of this format and of the decoder.
    """
    canvas = config.image_size if kind is CacheName.PREPARED else None
    subject = [str(kind), str(config.exif_orientation), canvas, index.source, *index.paths]
    content = [_VERSION, cv2.__version__, *index.class_names, *(_stamp(path) for path in index.paths)]
    return cache_files.CacheKey(_digest(subject), _digest(content, index.sizes.astype(np.int64).tobytes()))


def cache_exists(index: SplitIndex, config: DataConfig, cache: CacheConfig) -> bool:
    """Whether the cache that is asked for can be used as it is: held by this process, or a file on disk."""
    if cache.selected is CacheName.NONE:
        return False
    key = cache_key(index, config, cache.selected)
    if cache.place is CachePlace.MEMORY:
        return _in_memory.find(key) is not None
    nbytes = cache_bytes(index.sizes, cache.selected, config.image_size)
    return cache_files.read_problems(key, nbytes) is not None


def open_cache(
    index: SplitIndex,
    config: DataConfig,
    cache: CacheConfig,
    *,
    threads: int,
    advance: Callable[[int], None] = lambda _: None,
) -> tuple[Pictures, CacheReport]:
    """Open the cache that is asked for, and make it if there is none.

    Args:
        index: training split.
        config: canvas, EXIF rule, and what to do with unusable images.
        cache: a cache that is selected.
        threads: that decode.
        advance: told how many pictures have been decoded since it was last told.

    Returns:
        pictures equal to those of the files, and what was done.

    Raises:
        DataError: an image cannot be used and the configuration says to stop.
        RunError: the file of the cache cannot be written.
    """
    start = time.perf_counter()
    place = layout(cached_shapes(index.sizes, cache.selected, config.image_size))
    key = cache_key(index, config, cache.selected)

    def build(descriptor: int) -> dict[int, str]:
        return _build(descriptor, place, index, config, cache.selected, threads=threads, advance=advance)

    if cache.place is CachePlace.MEMORY:
        images, reused = _in_memory.open(key, place, build)
    else:
        held, problems, reused = cache_files.open_file(key, place.nbytes, build)
        images = _images(held, place, problems)
    if images.problems and config.bad_images is BadImages.RAISE:
        raise stopping(images.problems[min(images.problems)])
    report = CacheReport(
        images=len(index),
        nbytes=place.nbytes,
        seconds=time.perf_counter() - start,
        reused=reused,
        unusable=len(images.problems),
    )
    if cache.selected is CacheName.PREPARED:
        return PreparedPictures(index, config, images), report
    return PictureSource(index, config, images), report


class _MemoryCaches:
    """The cache in memory that a process made last: a second fit uses it again.

    It lives until another one takes its place and nothing reads it any more, or until the process ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: cache_files.CacheKey | None = None
        self._images: CachedImages | None = None

    def find(self, key: cache_files.CacheKey) -> CachedImages | None:
        """Return the cache of a key."""
        return self._images if self._key == key else None

    def open(
        self, key: cache_files.CacheKey, place: Layout, build: Callable[[int], dict[int, str]]
    ) -> tuple[CachedImages, bool]:
        """Return the cache of a key, made now if there is none, and whether there was one."""
        with self._lock:
            if (found := self.find(key)) is not None:
                return found, True
            self._key = self._images = None  # first room, then the new one
            held = memory_file()
            self._images = _images(held, place, build(held.descriptor))
            self._key = key
            return self._images, False


_in_memory = _MemoryCaches()


def _images(held: HeldFile, place: Layout, problems: Mapping[int, str]) -> CachedImages:
    return CachedImages(Arena(held.path, place.offsets, place.shapes, held), problems)


def _build(
    descriptor: int,
    place: Layout,
    index: SplitIndex,
    config: DataConfig,
    kind: CacheName,
    *,
    threads: int,
    advance: Callable[[int], None],
) -> dict[int, str]:
    """Decode every image into a file; returns why some could not be used."""
    read = FileSource(index.paths, config.exif_orientation)
    problems: dict[int, str] = {}

    def load(image: int) -> NDArray[np.uint8] | None:
        try:
            pixels = checked(read(image), index, image)
        except DataError as error:
            if config.bad_images is BadImages.RAISE:
                raise stopping(str(error)) from None
            problems[image] = str(error)
            return None
        if kind is CacheName.DECODED:
            return pixels
        height, width = place.shapes[image].tolist()
        return resized(pixels, width, height)

    fill(descriptor, place, load, threads=threads, advance=advance)
    return problems


def _stamp(path: str) -> tuple[int, int]:
    """Length and time of a file; minus one where there is none."""
    try:
        stat = os.stat(path)
    except OSError:
        return -1, -1
    return stat.st_size, stat.st_mtime_ns


def _digest(parts: Sequence[object], more: bytes = b"") -> str:
    return hashlib.blake2b(json.dumps(parts).encode() + more, digest_size=12).hexdigest()
