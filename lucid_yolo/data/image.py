"""Image files to RGB pixels: one rule for orientation, depth, palette, alpha and damage, for all who read pictures.

- EXIF orientation: applied or ignored as the configuration says, in every format.
- Gray is repeated to three channels, palettes are expanded, CMYK is converted, alpha is dropped.
- 16-bit samples keep their 8 most significant *used* bits: the picture's maximum says whether 8, 10, 12, 14 or 16 bits
  are in use. So 12-bit data in 16-bit files does not turn black, and nothing is clipped to white.
- A file that ends early is an error, also where a decoder would fill the rest with gray.

Nothing here writes.
"""

from __future__ import annotations

import io
import os
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from lucid_yolo.config.errors import DataError
from lucid_yolo.config.schema import ExifOrientation
from lucid_yolo.data.image_header import HeaderError, ImageHeader, is_truncated, read_header

_DECODE = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_ANYDEPTH | cv2.IMREAD_IGNORE_ORIENTATION
_SAMPLE_BITS = (8, 10, 12, 14, 16)
_BACK = {6: 8, 8: 6}  # orientations that undo each other; the others undo themselves


def read_image(path: str, *, exif: ExifOrientation) -> NDArray[np.uint8]:
    """Read a picture.

    Args:
        path: image file.
        exif: whether the EXIF orientation turns it.

    Returns:
        (H, W, 3) uint8 RGB, contiguous.

    Raises:
        DataError: the file is missing, empty, truncated or cannot be decoded.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise _unreadable(path, _os_reason(error)) from None
    return decode_image(data, exif=exif, name=path)


def decode_image(data: bytes, *, exif: ExifOrientation, name: str) -> NDArray[np.uint8]:
    """Decode the bytes of an image file; ``name`` is for the message.

    Returns:
        (H, W, 3) uint8 RGB, contiguous.

    Raises:
        DataError: the bytes are empty, truncated or cannot be decoded.
    """
    try:
        header = read_header(io.BytesIO(data))
    except HeaderError as error:
        raise _unreadable(name, str(error)) from None
    if is_truncated(data, header):
        raise _unreadable(name, f"the {header.format} file is truncated: it ends before its picture does")
    try:
        decoded = cv2.imdecode(np.frombuffer(data, np.uint8), _DECODE)
    except cv2.error as error:
        raise _unreadable(name, f"{header.format} decoder: {str(error).strip()}") from None
    if decoded is None:
        raise _unreadable(name, f"its {header.format} data is damaged or of a kind that cannot be decoded")
    return _turned(_to_uint8(decoded, name), header, exif)


def image_size(path: str, *, exif: ExifOrientation) -> tuple[int, int]:
    """Width and height of a picture in pixels under the EXIF rule, from its header.

    Raises:
        DataError: the file is missing or its header cannot be read.
    """
    return image_header(path).size(exif)


def image_header(path: str) -> ImageHeader:
    """Header of an image file; remembered for as long as the file's time and length stay the same.

    Raises:
        DataError: the file is missing or its header cannot be read.
    """
    try:
        stat = os.stat(path)
        return _cached_header(path, stat.st_mtime_ns, stat.st_size)
    except HeaderError as error:
        raise _unreadable(path, str(error)) from None
    except OSError as error:
        raise _unreadable(path, _os_reason(error)) from None


@lru_cache(maxsize=1 << 18)
def _cached_header(path: str, _mtime_ns: int, _bytes: int) -> ImageHeader:
    with open(path, "rb") as file:
        return read_header(file)


def _to_uint8(pixels: NDArray[np.generic], name: str) -> NDArray[np.uint8]:
    if pixels.dtype == np.uint8:
        return pixels.view(np.uint8)
    if pixels.dtype != np.uint16:
        raise _unreadable(name, f"its samples are {pixels.dtype}; allowed: 8 or 16 bits, unsigned")
    peak = int(pixels.max())
    bits = next(bits for bits in _SAMPLE_BITS if peak < 1 << bits)
    shifted: NDArray[np.uint8] = np.right_shift(pixels.view(np.uint16), bits - 8).astype(np.uint8)
    return shifted


def _turned(pixels: NDArray[np.uint8], header: ImageHeader, exif: ExifOrientation) -> NDArray[np.uint8]:
    """Turn stored pixels as the EXIF orientation says; the TIFF decoder turns on its own and is turned back."""
    apply = exif is ExifOrientation.APPLY
    if header.format == "TIFF":
        orientation = 1 if apply else _BACK.get(header.orientation, header.orientation)
    else:
        orientation = header.orientation if apply else 1
    if orientation == 1:
        return pixels
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


def _unreadable(name: str, reason: str) -> DataError:
    return DataError(f"image {name}: {reason}")


def _os_reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
