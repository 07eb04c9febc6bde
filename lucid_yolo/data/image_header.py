"""What the header of an image file says: stored size and EXIF orientation, without decoding a pixel.

JPEG and PNG, nearly all files of nearly all data sets, are read here in some forty microseconds; Pillow reads the
headers of the others. No library's own orientation rule is used, so that there is one for all formats and readers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO

from PIL import Image, UnidentifiedImageError

from lucid_yolo.config.schema import ExifOrientation

_ORIENTATION_TAG = 0x0112
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"IEND\xaeB`\x82"  # type and checksum of the closing chunk, which is always empty
_JPEG_END = b"\xff\xd9"
_JPEG_SIZE_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # start of frame; the three others are tables
_JPEG_BARE_MARKERS = frozenset({0x01, *range(0xD0, 0xD8)})  # markers without a segment


class HeaderError(ValueError):
    """The header cannot be read; the text says why, the caller knows the file's name."""


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """Facts of an image file's header.

    Attributes:
        format: "JPEG", "PNG", "WEBP", "TIFF", ...
        width: stored width in pixels.
        height: stored height in pixels.
        orientation: EXIF orientation, 1 (upright) to 8; 1 where there is none or the tag is damaged.
        payload: byte offset of the compressed picture in a JPEG file, else 0.
    """

    format: str
    width: int
    height: int
    orientation: int = 1
    payload: int = 0

    def size(self, exif: ExifOrientation) -> tuple[int, int]:
        """Width and height under an EXIF rule."""
        if exif is ExifOrientation.APPLY and self.orientation >= 5:  # 5 to 8 swap the axes
            return self.height, self.width
        return self.width, self.height


def read_header(stream: BinaryIO) -> ImageHeader:
    """Read the header of an image file.

    Raises:
        HeaderError: the header is damaged, empty or of an unknown format.
    """
    start = stream.read(8)
    if not start:
        raise HeaderError("the file is empty (0 bytes)")
    if start[:3] == b"\xff\xd8\xff":
        header = _read_jpeg(stream)
    elif start == _PNG_SIGNATURE:
        header = _read_png(stream)
    else:
        header = _read_other(stream)
    if header.width < 1 or header.height < 1:
        raise HeaderError(f"its header says {header.width}x{header.height} pixels")
    return header


def is_truncated(data: bytes, header: ImageHeader) -> bool:
    """Whether a file ends before its picture does.

    Decoders differ here: some fill the missing part with gray and say nothing. Bytes after the picture's end are
    harmless.
    """
    if header.format == "JPEG":
        return data.rfind(_JPEG_END, header.payload) < 0  # 0xFF in picture data is followed by 0x00 or a restart marker
    if header.format == "PNG":
        return data.rfind(_PNG_END) < 0
    if header.format == "WEBP":
        return int.from_bytes(data[4:8], "little") + 8 > len(data)
    return False


def _take(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise HeaderError("the file ends inside its header")
    return data


def _read_jpeg(stream: BinaryIO) -> ImageHeader:
    """Walk the segments of a JPEG file (ITU-T T.81, annex B) up to the start of the first scan."""
    stream.seek(2)
    width = height = 0
    orientation: int | None = None
    while True:
        while _take(stream, 1) != b"\xff":
            pass
        marker = 0xFF
        while marker == 0xFF:
            marker = _take(stream, 1)[0]
        if marker in _JPEG_BARE_MARKERS or marker == 0x00:
            continue
        if marker == 0xD9:
            raise HeaderError("the file holds no picture")
        (length,) = struct.unpack(">H", _take(stream, 2))
        if marker == 0xDA:
            return ImageHeader("JPEG", width, height, orientation or 1, stream.tell())
        if marker in _JPEG_SIZE_MARKERS:
            height, width = struct.unpack(">xHH", _take(stream, 5))
            stream.seek(length - 7, 1)
        elif marker == 0xE1 and orientation is None:
            orientation = _exif_orientation(_take(stream, length - 2))
        else:
            stream.seek(length - 2, 1)


def _read_png(stream: BinaryIO) -> ImageHeader:
    """Walk all chunks of a PNG file, because ``eXIf`` may follow the picture."""
    width = height = 0
    orientation = 1
    while len(head := stream.read(8)) == 8:
        length, kind = struct.unpack(">I4s", head)
        if not width and kind != b"IHDR":
            raise HeaderError("its first chunk is not IHDR")
        if kind == b"IEND":
            break
        skip = length + 4
        if kind == b"IHDR":
            width, height = struct.unpack(">II", _take(stream, 8))
            skip -= 8
            if not width or length != 13:
                raise HeaderError("its IHDR chunk is damaged")
        elif kind == b"eXIf":
            orientation = _tiff_orientation(_take(stream, length)) or 1
            skip -= length
        stream.seek(skip, 1)
    return ImageHeader("PNG", width, height, orientation)


def _read_other(stream: BinaryIO) -> ImageHeader:
    stream.seek(0)
    try:
        with Image.open(stream) as picture:
            name = picture.format or "unknown"
            if name == "TIFF":  # Pillow's own size is already turned
                tags = picture.tag_v2  # type: ignore[attr-defined]
                orientation = tags.get(_ORIENTATION_TAG, 1)
                return ImageHeader(name, tags[256], tags[257], orientation if orientation in range(1, 9) else 1)
            exif = picture.info.get("exif", b"")
            orientation = _exif_orientation(exif) or _tiff_orientation(exif) or 1
            return ImageHeader(name, picture.width, picture.height, orientation)
    except UnidentifiedImageError:
        raise HeaderError("it is not an image of a known format, or its header is damaged") from None
    except Image.DecompressionBombError:
        raise HeaderError("its header says more pixels than a picture can have") from None
    except (OSError, SyntaxError, ValueError, KeyError, struct.error) as error:
        raise HeaderError(f"its header is damaged ({error})") from None


def _exif_orientation(segment: bytes) -> int | None:
    """Orientation in an APP1 segment, None where the segment is not EXIF or has no valid tag."""
    return _tiff_orientation(segment[6:]) if segment.startswith(b"Exif\0\0") else None


def _tiff_orientation(tiff: bytes) -> int | None:
    """Orientation in the first directory of a TIFF structure (EXIF 2.32, section 4.6); None where absent or damaged."""
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None or len(tiff) < 8:
        return None
    (offset,) = struct.unpack_from(order + "I", tiff, 4)
    if offset + 2 > len(tiff):
        return None
    (count,) = struct.unpack_from(order + "H", tiff, offset)
    for start in range(offset + 2, min(offset + 2 + 12 * count, len(tiff) - 11), 12):
        tag, _, _, value = struct.unpack_from(order + "HHIH", tiff, start)
        if tag == _ORIENTATION_TAG:
            return value if 1 <= value <= 8 else None
    return None
