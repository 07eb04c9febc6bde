"""The colour augmentation: hue, saturation and value gains in integers, so that every device writes the same bytes.

Definition, for one pixel ``(r, g, b)`` of uint8 and float32 gains ``(gain_h, gain_s, gain_v)``:

1. RGB -> HSV with ``h`` in 0..179 (steps of two degrees) and ``s, v`` in 0..255, with 12 fractional bits::

       v = max(r, g, b); d = v - min(r, g, b)
       s = (d * rint(255 * 4096 / v) + 2048) >> 12
       c = g - b, b - r + 2d or r - g + 4d        where v == r, else v == g, else v == b
       h = (c * rint(180 * 4096 / (6d)) + 2048) >> 12, plus 180 where negative

2. Three tables of 256 entries (`gain_tables`): hue is *shifted* around the colour circle by ``gain_h - 1`` turns;
   saturation and value are scaled and clipped. (Scaling hue instead would move blue most and red not at all, and
   tear the circle at red.)

3. HSV -> RGB with ``sector = h // 30`` and ``q = h - 30 * sector``. The numerator ``n`` of each channel is 7650,
   ``7650 - 30s``, ``7650 - s * q`` or ``7650 - s * (30 - q)``, by sector. ``f = (65536 * n + 7650) // 15300`` is the
   same as a fraction with 15 bits, and the byte is ``(v * f + 16384) >> 15``.

A gain of 1 means no change, but the round trip through HSV moves a colour by up to 5 levels: gains that are all 1 skip
the transform, on every path. OpenCV's own way back to RGB is not used: its result depends on the pixel's column.
"""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

HUES = 180
_BLOCK = 20480  # pixels a pass: few calls, and planes that mostly stay in the cache
_CHECK_LEVELS = 40


def gain_tables(gains: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Turn gains into tables.

    Every entry is one float32 product, rounded half to even, so that any device computes the same.

    Args:
        gains: (3,) float32 gains of hue, saturation and value; 1 is no change.

    Returns:
        (3, 256) uint8: the new hue, saturation and value of each old one. Hue entries from 180 on are unused.
    """
    levels = np.arange(256, dtype=np.float32)
    gain_h, gain_s, gain_v = gains.astype(np.float32)
    shift = int(np.rint((gain_h - np.float32(1)) * np.float32(HUES)))
    tables = np.empty((3, 256), np.uint8)
    tables[0] = (np.arange(256) + shift) % HUES
    tables[1] = np.clip(np.rint(levels * gain_s), 0, 255)
    tables[2] = np.clip(np.rint(levels * gain_v), 0, 255)
    return tables


def is_identity(gains: NDArray[np.float32]) -> bool:
    """Whether gains leave the picture alone: all exactly 1."""
    return bool((gains == 1).all())


@lru_cache(maxsize=1)
def factor_table() -> NDArray[np.uint16]:
    """Build the factors of step 3 for all hues and saturations.

    Returns:
        (256, 256, 4) uint16 factors of R, G, B (and 0) in 0..32768, by saturation and hue; read-only. Unused hues
        (from 180 on) are 0.
    """
    saturation = np.arange(256, dtype=np.int64)[:, None]
    hue = np.arange(HUES, dtype=np.int64)[None]
    sector = hue // 30
    q = hue - 30 * sector
    full = np.full((256, HUES), 7650)
    low = 7650 - 30 * saturation + 0 * q
    falling = 7650 - saturation * q
    rising = 7650 - saturation * (30 - q)
    by_sector = (
        (full, rising, low),
        (falling, full, low),
        (low, full, rising),
        (low, falling, full),
        (rising, low, full),
        (full, low, falling),
    )
    table = np.zeros((256, 256, 4), np.uint16)
    for channel in range(3):
        numerator = np.choose(sector + 0 * saturation, [planes[channel] for planes in by_sector])
        table[:, :HUES, channel] = (65536 * numerator + 7650) // 15300
    table.setflags(write=False)
    return table


@lru_cache(maxsize=1)
def _divisors() -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Build the reciprocals of step 1: (256,) of 255 / v and (256,) of 180 / (6d), with 12 fractional bits; 0 at 0."""
    level = np.arange(1, 256, dtype=np.float64)
    by_value, by_range = np.zeros(256, np.int32), np.zeros(256, np.int32)
    by_value[1:] = np.rint(255 * 4096 / level)
    by_range[1:] = np.rint(HUES * 4096 / (6 * level))
    return by_value, by_range


def rgb_to_hsv(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Step 1 in numpy, for any shape ``(..., 3)``: exact and slow; `ColourTransform` uses OpenCV where it agrees."""
    by_value, by_range = _divisors()
    red, green, blue = (pixels[..., channel].astype(np.int32) for channel in range(3))
    value = np.maximum(np.maximum(red, green), blue)
    spread = value - np.minimum(np.minimum(red, green), blue)
    saturation = (spread * by_value[value] + 2048) >> 12
    offset = np.where(
        value == red, green - blue, np.where(value == green, blue - red + 2 * spread, red - green + 4 * spread)
    )
    hue = (offset * by_range[spread] + 2048) >> 12
    hue += np.where(hue < 0, HUES, 0)
    return np.stack([hue, saturation, value], axis=-1).astype(np.uint8)


@lru_cache(maxsize=1)
def opencv_is_exact() -> bool:
    """Whether this build of OpenCV computes step 1 as defined: tried once a process on a grid of colours."""
    levels = np.linspace(0, 255, _CHECK_LEVELS).astype(np.uint8)
    grid = np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), axis=-1).reshape(_CHECK_LEVELS, -1, 3)
    return bool(np.array_equal(cv2.cvtColor(grid, cv2.COLOR_RGB2HSV), rgb_to_hsv(grid)))


class ColourTransform:
    """Steps 1 to 3 on the host. Keeps its buffers: fresh ones would cost as much as the arithmetic."""

    def __init__(self) -> None:
        self._hsv = np.empty((1, _BLOCK, 3), np.uint8)
        self._hsvx = np.empty((1, _BLOCK, 4), np.uint8)
        self._hue_saturation = np.empty(_BLOCK, np.intp)
        self._value = np.empty(_BLOCK, np.intp)
        self._factors = np.empty(_BLOCK, np.uint64)  # four uint16 a pixel
        self._values = np.empty(_BLOCK, np.complex128)  # four uint32 a pixel
        self._products = np.empty((_BLOCK, 4), np.uint32)
        self._bytes = np.empty((1, _BLOCK, 4), np.uint8)
        self._table = np.empty((256, 256), np.uint64)

    def __call__(self, image: NDArray[np.uint8], gains: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Change the colours of an image in place.

        Args:
            image: (H, W, 3) uint8 RGB, contiguous.
            gains: (3,) float32; all ones leave the image untouched.

        Returns:
            The same array.
        """
        if is_identity(gains):
            return image
        hue, saturation, value = gain_tables(gains)
        base = factor_table().view(np.uint64)[..., 0]
        np.take(base[saturation], hue, axis=1, out=self._table, mode="clip")
        table = self._table.reshape(-1)
        values = np.repeat(value.astype(np.uint32)[:, None], 4, axis=1).view(np.complex128)[:, 0]
        pixels = image.reshape(1, -1, 3)
        for start in range(0, pixels.shape[1], _BLOCK):
            self._block(pixels[:, start : start + _BLOCK], table, values)
        return image

    def _block(self, rgb: NDArray[np.uint8], table: NDArray[np.uint64], values: NDArray[np.complex128]) -> None:
        """Transform up to one block of pixels, (1, n, 3), in place."""
        n = rgb.shape[1]
        hsv, hsvx = self._hsv[:, :n], self._hsvx[:, :n]
        if opencv_is_exact():
            cv2.cvtColor(rgb, cv2.COLOR_RGB2HSV, hsv)
        else:
            hsv[:] = rgb_to_hsv(rgb)
        cv2.cvtColor(hsv, cv2.COLOR_BGR2BGRA, hsvx)
        words = hsvx.view("<u4").reshape(n)  # h | s << 8 | v << 16 | 255 << 24
        at, value_at = self._hue_saturation[:n], self._value[:n]
        np.bitwise_and(words, 0xFFFF, out=at, casting="unsafe")
        np.copyto(value_at, hsvx[0, :, 2])
        factors, value = self._factors[:n], self._values[:n]
        # mode="clip" writes straight into `out`; the indices are in range by construction.
        table.take(at, out=factors, mode="clip")
        values.take(value_at, out=value, mode="clip")
        products = self._products[:n]
        np.copyto(products, factors.view(np.uint16).reshape(n, 4))
        np.multiply(products, value.view(np.uint32).reshape(n, 4), out=products)
        np.add(products, 16384, out=products)
        np.right_shift(products, 15, out=products)
        narrow = self._bytes[:, :n]
        np.copyto(narrow[0], products, casting="unsafe")
        cv2.cvtColor(narrow, cv2.COLOR_BGRA2BGR, rgb)
