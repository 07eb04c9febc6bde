from __future__ import annotations

import csv
import io
import struct
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from lucid_yolo.config.errors import DataError
from lucid_yolo.config.schema import ExifOrientation
from lucid_yolo.data.image import decode_image, image_size, read_image

APPLY, IGNORE = ExifOrientation.APPLY, ExifOrientation.IGNORE


def encoded(pixels: np.ndarray, fmt: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, fmt, **options)
    return buffer.getvalue()


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


# what Pillow shows after EXIF transposition and conversion to RGB is the independent reference
SAME_AS_PILLOW = {
    "exif/hopper.jpg": 0.0,
    "exif/hopper_orientation_3.jpg": 0.0,
    "exif/hopper_orientation_6.jpg": 0.0,
    "exif/hopper_orientation_8.jpg": 0.0,
    "exif/hopper_orientation_6.webp": 0.0,
    "modes/hopper_gray.jpg": 0.0,
    "modes/pil_sample_cmyk.jpg": 1.0,  # mean difference: two formulas for CMYK
    "modes/p_trns_single.png": 0.0,
    "modes/rgb_trns.png": 0.0,
    "modes/transparent.webp": 0.0,
    "broken/invalid-exif.jpg": 0.0,  # a damaged EXIF block counts as none
}
SIXTEEN_BIT = {"modes/i_trns.png": 255, "modes/12in16bit.tif": 30}  # with their largest sample
REFUSED = {
    "broken/truncated_jpeg.jpg": "the JPEG file is truncated",
    "broken/broken_data_stream.png": "the PNG file is truncated",
    "broken/broken.png": "its first chunk is not IHDR",
    "broken/zero_width.gif": "not an image of a known format, or its header is damaged",
}


def test_every_odd_file_is_tested(test_data: Path) -> None:
    with open(test_data / "odd_files" / "INDEX.csv", newline="") as file:
        names = {row["file"] for row in csv.DictReader(file)}
    assert names == set(SAME_AS_PILLOW) | set(SIXTEEN_BIT) | set(REFUSED)


@pytest.mark.parametrize(("name", "tolerance"), SAME_AS_PILLOW.items())
def test_odd_file_reads_as_pillow_shows_it(test_data: Path, name: str, tolerance: float) -> None:
    path = str(test_data / "odd_files" / name)
    pixels = read_image(path, exif=APPLY)
    shown = np.asarray(ImageOps.exif_transpose(Image.open(path)).convert("RGB"))
    assert pixels.shape == shown.shape
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    # the orientation_* files are re-encoded, so decoders may differ in the last bit of a few pixels
    assert np.abs(pixels.astype(int) - shown).mean() <= tolerance
    assert image_size(path, exif=APPLY) == (pixels.shape[1], pixels.shape[0])


@pytest.mark.parametrize(("name", "peak"), SIXTEEN_BIT.items())
def test_sixteen_bit_file_is_neither_black_nor_clipped(test_data: Path, name: str, peak: int) -> None:
    path = test_data / "odd_files" / name
    raw = np.asarray(Image.open(path)).astype(int)
    assert raw.max() == peak
    pixels = read_image(str(path), exif=APPLY)
    np.testing.assert_array_equal(pixels, np.repeat(raw[..., None], 3, axis=2))  # at most 8 bits are in use


@pytest.mark.parametrize(("name", "reason"), REFUSED.items())
def test_broken_file_is_refused_with_name_and_reason(test_data: Path, name: str, reason: str) -> None:
    path = test_data / "odd_files" / name
    before = path.read_bytes()
    with pytest.raises(DataError, match=f"{path.name}: .*{reason}"):
        read_image(str(path), exif=APPLY)
    assert path.read_bytes() == before


@pytest.mark.parametrize("fmt", ["PNG", "TIFF", "WEBP", "JPEG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_one_exif_rule_for_all_formats(tmp_path: Path, fmt: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(noise(20, 30, 3), fmt, exif=exif, **({"lossless": True} if fmt == "WEBP" else {}))
    path = tmp_path / f"picture.{fmt.lower()}"
    path.write_bytes(data)
    shown = np.asarray(ImageOps.exif_transpose(Image.open(path)))
    applied = read_image(str(path), exif=APPLY)
    np.testing.assert_array_equal(applied, shown)
    assert image_size(str(path), exif=APPLY) == (shown.shape[1], shown.shape[0])
    ignored = read_image(str(path), exif=IGNORE)
    assert ignored.shape == (20, 30, 3)
    assert image_size(str(path), exif=IGNORE) == (30, 20)
    if fmt != "JPEG":
        np.testing.assert_array_equal(ignored, noise(20, 30, 3))


def test_exif_after_the_picture_of_a_png_counts() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(noise(20, 30, 3), "PNG", exif=exif)
    start = data.index(b"eXIf") - 4
    (length,) = struct.unpack_from(">I", data, start)
    chunk = data[start : start + length + 12]
    end = data.index(b"IEND") - 4
    moved = data[:start] + data[start + len(chunk) : end] + chunk + data[end:]
    assert decode_image(moved, exif=APPLY, name="x").shape == (30, 20, 3)


@pytest.mark.parametrize(
    ("peak", "expected"),
    [
        (255, [0, 127, 255]),  # 8 bits in use: unchanged
        (1023, [0, 511 >> 2, 255]),  # 10 bits
        (4095, [0, 2047 >> 4, 255]),  # 12 bits
        (5000, [0, 2500 >> 6, 5000 >> 6]),  # 13 bits need 14
        (65535, [0, 32767 >> 8, 255]),
    ],
)
@pytest.mark.parametrize("fmt", ["PNG", "TIFF"])
def test_sixteen_bit_samples_keep_the_eight_highest_used_bits(peak: int, expected: list[int], fmt: str) -> None:
    data = encoded(np.array([[0, peak // 2, peak]], np.uint16), fmt)
    pixels = decode_image(data, exif=APPLY, name="x")
    assert pixels[0].tolist() == [[value] * 3 for value in expected]


def test_gray_with_alpha_bilevel_and_palette() -> None:
    gray = encoded(np.dstack([np.full((4, 5), 90, np.uint8), np.full((4, 5), 7, np.uint8)]), "PNG")
    assert (decode_image(gray, exif=APPLY, name="x") == 90).all()
    buffer = io.BytesIO()
    Image.fromarray(np.eye(8, dtype=bool)).save(buffer, "PNG")
    assert (
        decode_image(buffer.getvalue(), exif=APPLY, name="x")[..., 1].tolist() == (255 * np.eye(8, dtype=int)).tolist()
    )
    picture = Image.fromarray(noise(6, 6, 3)).convert("P", palette=Image.Palette.ADAPTIVE)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    np.testing.assert_array_equal(
        decode_image(buffer.getvalue(), exif=APPLY, name="x"), np.asarray(picture.convert("RGB"))
    )


@pytest.mark.parametrize("fmt", ["PNG", "TIFF", "WEBP", "JPEG", "BMP"])
@pytest.mark.parametrize("share", [0.98, 0.5, 0.02])
def test_truncated_file_is_refused(fmt: str, share: float) -> None:
    data = encoded(noise(120, 160, 3), fmt)
    with pytest.raises(DataError, match="image x"):
        decode_image(data[: int(len(data) * share)], exif=APPLY, name="x")


def test_truncated_jpeg_with_thumbnail_is_noticed() -> None:
    thumbnail = encoded(noise(8, 8, 3), "JPEG")  # has an end marker of its own
    data = encoded(noise(64, 64, 3), "JPEG", exif=b"Exif\0\0" + thumbnail)
    assert decode_image(data, exif=APPLY, name="x").shape == (64, 64, 3)
    with pytest.raises(DataError, match="the JPEG file is truncated: it ends before its picture does"):
        decode_image(data[:-200], exif=APPLY, name="x")


def test_bytes_after_the_end_are_harmless() -> None:
    for fmt in ("JPEG", "PNG"):
        data = encoded(noise(16, 16, 3), fmt)
        np.testing.assert_array_equal(
            decode_image(data + b"\0" * 50, exif=APPLY, name="x"), decode_image(data, exif=APPLY, name="x")
        )


def test_empty_missing_and_foreign_files(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jpg"
    empty.touch()
    text = tmp_path / "text.jpg"
    text.write_text("this is not a picture at all")
    for path, reason in (
        (empty, r"the file is empty \(0 bytes\)"),
        (text, "not an image of a known format"),
        (tmp_path / "none.jpg", "no such file"),
        (tmp_path, "is a directory"),
    ):
        for call in (read_image, image_size):
            with pytest.raises(DataError, match=f"image {path}: .*{reason}"):
                call(str(path), exif=APPLY)


def test_float_samples_are_refused() -> None:
    data = encoded(np.ones((9, 9), np.float32), "TIFF")
    with pytest.raises(DataError, match="image x: its"):
        decode_image(data, exif=APPLY, name="x")


def test_replaced_file_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    for height, width in ((20, 30), (21, 33)):
        path.write_bytes(encoded(noise(height, width, 3), "PNG"))
        assert image_size(str(path), exif=APPLY) == (width, height)


@given(st.binary(max_size=200), st.sampled_from([b"", b"\xff\xd8\xff\xe1", b"\x89PNG\r\n\x1a\n", b"II*\0", b"RIFF"]))
def test_garbage_gives_our_error_only(tail: bytes, head: bytes) -> None:
    with pytest.raises(DataError):
        decode_image(head + tail, exif=APPLY, name="x")


def test_same_pixels_as_the_plain_decoder(test_data: Path) -> None:
    path = str(test_data / "bccd" / "JPEGImages" / "BloodImage_00001.jpg")
    plain = cv2.cvtColor(cv2.imread(path, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
    np.testing.assert_array_equal(read_image(path, exif=APPLY), plain)
