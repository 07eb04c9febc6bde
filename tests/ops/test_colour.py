"""The colour transform against the definition, colour by colour."""

from __future__ import annotations

import colorsys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lucid_yolo.ops.colour import (
    ColourTransform,
    factor_table,
    gain_tables,
    is_identity,
    opencv_is_exact,
    rgb_to_hsv,
)

TYPICAL = np.array([1.013, 1.55, 0.72], np.float32)
BRIGHT = np.array([0.9871, 0.3, 1.4], np.float32)


def scalar_reference(r: int, g: int, b: int, gains: np.ndarray) -> tuple[int, int, int]:
    """The definition with Python integers, written without looking at the vector code."""
    v = max(r, g, b)
    d = v - min(r, g, b)
    s = 0 if v == 0 else (d * round(255 * 4096 / v) + 2048) >> 12
    if d == 0:
        h = 0
    else:
        c = g - b if v == r else (b - r + 2 * d if v == g else r - g + 4 * d)
        h = (c * round(180 * 4096 / (6 * d)) + 2048) >> 12
        h = h + 180 if h < 0 else h
    shift = round(float(np.float32(gains[0] - np.float32(1)) * np.float32(180)))
    h = (h + shift) % 180
    s = min(255, round(float(np.float32(s) * np.float32(gains[1]))))
    v = min(255, round(float(np.float32(v) * np.float32(gains[2]))))
    sector, q = divmod(h, 30)
    low, fall, rise, full = 7650 - 30 * s, 7650 - s * q, 7650 - s * (30 - q), 7650
    numerators = [
        (full, rise, low), (fall, full, low), (low, full, rise), (low, fall, full), (rise, low, full), (full, low, fall)
    ][sector]  # fmt: skip
    return tuple((v * ((np.int64(65536) * n + 7650) // 15300) + 16384) >> 15 for n in numerators)  # type: ignore[return-value]


def vector_reference(rgb: np.ndarray, tables: np.ndarray) -> np.ndarray:
    """The definition on arrays, (N, 3): true divisions instead of factor tables, one mask a sector."""
    r, g, b = (rgb[:, k].astype(np.int32) for k in range(3))
    v, low = np.maximum(np.maximum(r, g), b), np.minimum(np.minimum(r, g), b)
    d = v - low
    s = np.where(v > 0, (d * np.rint(255 * 4096 / np.maximum(v, 1)).astype(np.int32) + 2048) >> 12, 0)
    c = np.where(v == r, g - b, np.where(v == g, b - r + 2 * d, r - g + 4 * d))
    h = np.where(d > 0, (c * np.rint(180 * 4096 / (6 * np.maximum(d, 1))).astype(np.int32) + 2048) >> 12, 0)
    h = np.where(h < 0, h + 180, h)
    h, s, v = (tables[0][h].astype(np.int32), tables[1][s].astype(np.int32), tables[2][v].astype(np.int32))
    q = h % 30
    n = np.empty((len(rgb), 3), np.int32)
    roles = ["VUP", "DVP", "PVU", "PDV", "UPV", "VPD"]
    numerator = {"V": 7650 + 0 * s, "P": 7650 - 30 * s, "D": 7650 - s * q, "U": 7650 - s * (30 - q)}
    for sector, letters in enumerate(roles):
        rows = h // 30 == sector
        for channel, letter in enumerate(letters):
            n[rows, channel] = numerator[letter][rows]
    return ((v[:, None] * ((np.int64(65536) * n + 7650) // 15300) + 16384) >> 15).astype(np.uint8)


def test_all_colours_equal_the_definition():
    transform, tables = ColourTransform(), gain_tables(TYPICAL)
    green, blue = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8), indexing="ij")
    for red in range(0, 256, 4):  # four planes at a time keep the reference in the cache
        planes = np.concatenate(
            [np.stack([np.full_like(green, red + k), green, blue], axis=-1) for k in range(4)]
        )  # (1024, 256, 3)
        expected = vector_reference(planes.reshape(-1, 3), tables).reshape(planes.shape)
        np.testing.assert_array_equal(transform(planes, TYPICAL), expected)


@given(st.tuples(*[st.integers(0, 255)] * 3), st.sampled_from([TYPICAL, BRIGHT]))
@settings(max_examples=300, deadline=None)
def test_one_colour_equals_the_scalar_definition(colour, gains):
    image = np.full((1, 3, 3), colour, np.uint8)
    np.testing.assert_array_equal(ColourTransform()(image, gains)[0], [scalar_reference(*colour, gains)] * 3)


def test_the_references_agree():
    colours = np.random.default_rng(0).integers(0, 256, (500, 3), dtype=np.uint8)
    expected = [scalar_reference(*map(int, colour), BRIGHT) for colour in colours]
    np.testing.assert_array_equal(vector_reference(colours, gain_tables(BRIGHT)), expected)


def test_result_is_a_function_of_the_colour_alone():
    colours = np.random.default_rng(1).integers(0, 256, (97, 1, 3), dtype=np.uint8)
    wide = np.repeat(colours, 331, axis=1)  # odd width, several blocks
    result = ColourTransform()(wide, BRIGHT)
    np.testing.assert_array_equal(result, np.repeat(result[:, :1], 331, axis=1))


def test_gains_of_one_leave_the_picture_alone():
    image = np.random.default_rng(2).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    ones = np.ones(3, np.float32)
    assert is_identity(ones)
    np.testing.assert_array_equal(ColourTransform()(image.copy(), ones), image)


def test_it_works_in_place_and_is_close_to_the_real_valued_transform():
    image = np.random.default_rng(3).integers(0, 256, (20, 20, 3), dtype=np.uint8)
    before = image.copy()
    assert ColourTransform()(image, TYPICAL) is image
    worst = 0.0
    for old, new in zip(before.reshape(-1, 3), image.reshape(-1, 3), strict=True):
        h, s, v = colorsys.rgb_to_hsv(*(old / 255))
        exact = colorsys.hsv_to_rgb((h + 0.013) % 1, min(1, s * 1.55), min(1, v * 0.72))
        worst = max(worst, float(np.abs(np.array(exact) * 255 - new).max()))
    assert worst < 6  # half a hue step of 2 degrees at full saturation, and rounding


def test_tables_by_hand():
    tables = gain_tables(np.array([1.5, 0.5, 2.0], np.float32))
    assert tables[0, :180].tolist() == [*range(90, 180), *range(90)]  # half a turn
    assert tables[1, :6].tolist() == [0, 0, 1, 2, 2, 2]  # half to even
    assert tables[2, [0, 1, 127, 128, 255]].tolist() == [0, 2, 254, 255, 255]


def test_factors_by_hand():
    table = factor_table()
    assert table[255, 0, :3].tolist() == [32768, 0, 0]  # pure red
    assert table[255, 60, :3].tolist() == [0, 32768, 0]  # pure green
    assert table[255, 30, :3].tolist() == [32768, 32768, 0]  # yellow
    assert table[0, 111, :3].tolist() == [32768] * 3  # gray


def test_without_an_exact_opencv_the_bytes_are_the_same(monkeypatch):
    assert opencv_is_exact()
    image = np.random.default_rng(4).integers(0, 256, (33, 47, 3), dtype=np.uint8)
    expected = ColourTransform()(image.copy(), TYPICAL)
    monkeypatch.setattr("lucid_yolo.ops.colour.opencv_is_exact", lambda: False)
    np.testing.assert_array_equal(ColourTransform()(image.copy(), TYPICAL), expected)
    primaries = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 0]], np.uint8)
    assert rgb_to_hsv(primaries).tolist() == [[0, 255, 255], [60, 255, 255], [0, 0, 0]]
