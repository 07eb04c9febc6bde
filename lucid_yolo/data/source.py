"""Where pictures come from, and the one scaling that all of them get first.

A decoded cache is another `ImageSource`; a prepared cache is another `Pictures`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.config.errors import DataError
from lucid_yolo.config.schema import BadImages, DataConfig, ExifOrientation
from lucid_yolo.data.geometry import resized
from lucid_yolo.data.image import read_image
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.ops.letterbox import PAD_VALUE, scaled_size


class ImageSource(Protocol):
    """Decoded images of a split."""

    def __call__(self, image: int) -> NDArray[np.uint8]:
        """Return image number ``image`` of the split, (H, W, 3) uint8 RGB; not to be written to."""
        ...


@dataclass(frozen=True, slots=True)
class FileSource:
    """Decodes the file at every call.

    Attributes:
        paths: one file an image.
        exif: whether the EXIF orientation turns it.
    """

    paths: tuple[str, ...]
    exif: ExifOrientation

    def __call__(self, image: int) -> NDArray[np.uint8]:
        """Read an image.

        Raises:
            DataError: the file cannot be decoded.
        """
        return read_image(self.paths[image], exif=self.exif)


@dataclass(frozen=True, slots=True)
class Picture:
    """One image at training resolution.

    Attributes:
        pixels: (h, w, 3) uint8 RGB, longer side = image size; not to be written to.
        problem: why the file could not be used, where a blank stands in for it; else None.
    """

    pixels: NDArray[np.uint8]
    problem: str | None = None


class Pictures(Protocol):
    """Images of a split at training resolution."""

    def __call__(self, image: int) -> Picture:
        """Return image number ``image`` of the split."""
        ...


def checked(pixels: NDArray[np.uint8], index: SplitIndex, image: int) -> NDArray[np.uint8]:
    """Return an image's pixels if they have the size that its labels are for.

    Raises:
        DataError: they have another size.
    """
    height, width = pixels.shape[:2]
    if (width, height) != tuple(index.sizes[image].tolist()):
        expected = "x".join(str(side) for side in index.sizes[image].tolist())
        raise DataError(
            f"image {index.paths[image]}: its picture has {width}x{height} pixels, but the labels of "
            f"{index.source} are for {expected}; correct the labels or the file"
        )
    return pixels


def stopping(problem: str) -> DataError:
    """The error for an image that cannot be used where the configuration says to stop."""
    return DataError(f"{problem}; data.bad_images=skip goes on without such files")


def stand_in(problem: str, bad_images: BadImages, size: tuple[int, int]) -> Picture:
    """Return a blank for an image that cannot be used.

    Args:
        problem: why not.
        bad_images: whether to go on.
        size: width and height of the blank.

    Raises:
        DataError: the configuration says to stop.
    """
    if bad_images is BadImages.RAISE:
        raise stopping(problem)
    width, height = size
    return Picture(np.full((height, width, 3), PAD_VALUE, np.uint8), problem=problem)


class PictureSource:
    """Images of a split at training resolution: decoded, and scaled once.

    Args:
        index: the split.
        config: image size, EXIF rule and what to do with unusable images.
        images: where decoded images come from; default: the files.
    """

    def __init__(self, index: SplitIndex, config: DataConfig, images: ImageSource | None = None) -> None:
        self._images = images or FileSource(index.paths, config.exif_orientation)
        self._index = index
        self._image_size = config.image_size
        self._bad_images = config.bad_images

    def size(self, image: int) -> tuple[int, int]:
        """Width and height at training resolution, known without reading the file."""
        width, height = self._index.sizes[image].tolist()
        return scaled_size(width, height, self._image_size)

    def original(self, image: int) -> Picture:
        """Return one image at the size it is stored in.

        Raises:
            DataError: the file cannot be used and the configuration says to stop.
        """
        try:
            return Picture(checked(self._images(image), self._index, image))
        except DataError as error:
            problem = str(error)
        width, height = self._index.sizes[image].tolist()
        return stand_in(problem, self._bad_images, (width, height))

    def __call__(self, image: int) -> Picture:
        """Return one image at training resolution.

        Raises:
            DataError: the file cannot be used and the configuration says to stop.
        """
        picture = self.original(image)
        return Picture(resized(picture.pixels, *self.size(image)), picture.problem)


class SharedPictures:
    """Pictures of one batch: each is read at its first use and dropped after its last.

    Args:
        source: where pictures come from.
        uses: image numbers in any order, each as often as it will be asked for.
    """

    def __init__(self, source: Pictures, uses: Iterable[int]) -> None:
        self._source = source
        self._left = Counter(uses)
        self._held: dict[int, Picture] = {}

    def __call__(self, image: int) -> Picture:
        """Return one picture.

        Raises:
            DataError: as the source does.
        """
        picture = self._held.pop(image, None) or self._source(image)
        self._left[image] -= 1
        if self._left[image] > 0:
            self._held[image] = picture
        return picture
