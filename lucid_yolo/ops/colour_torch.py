"""The colour transform in torch, for images that are on the device already: the bytes of `lucid_yolo.ops.colour`.

Only shapes decide what is launched, and nothing is read on the host, so the operations can be recorded.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lucid_yolo.ops.colour import HUES
from lucid_yolo.ops.images import UNIT

_CHUNK = 1 << 22  # pixels a pass: a dozen planes of int32 are alive at a time
_RED, _GREEN, _BLUE = 60, 0, 120
"""Hue shifts that carry each channel's rise, top, fall and bottom to where green has them."""


def colour_and_scale(images: Tensor, gains: Tensor, *, dtype: torch.dtype) -> Tensor:
    """Apply colour gains and scale to 0 .. 1.

    Equals `lucid_yolo.ops.images.scale_images` of the bytes that the workers' transform gives, bit for bit.

    Args:
        images: (B, 3, S, S) uint8 RGB.
        gains: (B, 3) float32 gains of hue, saturation and value; an image whose gains are all 1 keeps its bytes.
        dtype: of the result; what is not float32 is rounded from it.

    Returns:
        (B, 3, S, S) in channels_last memory.
    """
    scaled = torch.empty(images.shape, dtype=dtype, device=images.device, memory_format=torch.channels_last)
    step = max(1, _CHUNK // (images.shape[2] * images.shape[3]))
    for start in range(0, len(images), step):
        chunk = slice(start, start + step)
        for channel, plane in enumerate(_coloured(images[chunk], gains[chunk])):
            scaled[chunk, channel].copy_(plane.to(torch.float32).mul_(UNIT))
    return scaled


def _coloured(images: Tensor, gains: Tensor) -> list[Tensor]:
    """Steps 1 to 3 of the definition; returns the new red, green and blue, each (b, S, S) int32."""
    old = images.to(torch.int32).unbind(1)
    gain_h, gain_s, gain_v = gains[:, :, None, None].unbind(1)
    hue, saturation, value = _rgb_to_hsv(*old)
    # The entries of the tables, computed where they are needed: the same float32 products, rounded half to even.
    hue = hue + ((gain_h - 1) * HUES).round().to(torch.int32)
    saturation = _scaled(saturation, gain_s)
    value = _scaled(value, gain_v)
    keep = (gains == 1).all(dim=1)[:, None, None]
    return [
        torch.where(keep, before, _channel(hue + turn, saturation, value))
        for before, turn in zip(old, (_RED, _GREEN, _BLUE), strict=True)
    ]


def _rgb_to_hsv(red: Tensor, green: Tensor, blue: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Step 1. Divisors of 0 become 1: what they divide is 0 there."""
    value = torch.maximum(torch.maximum(red, green), blue)
    spread = value - torch.minimum(torch.minimum(red, green), blue)
    saturation = (spread * _rounded_quotient(255 * 4096, value.clamp(min=1)) + 2048) >> 12
    offset = torch.where(
        value == red, green - blue, torch.where(value == green, blue - red + 2 * spread, red - green + 4 * spread)
    )
    hue = (offset * _rounded_quotient(HUES * 4096 // 6, spread.clamp(min=1)) + 2048) >> 12
    return torch.where(hue < 0, hue + HUES, hue), saturation, value


def _rounded_quotient(numerator: int, divisor: Tensor) -> Tensor:
    """``rint(numerator / divisor)`` in integers; no quotient of the definition lies half-way."""
    return (divisor + 2 * numerator).div(2 * divisor, rounding_mode="floor")


def _scaled(level: Tensor, gain: Tensor) -> Tensor:
    """Step 2 for saturation or value."""
    return (level.to(torch.float32) * gain).round().clamp(0, 255).to(torch.int32)


def _channel(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """Step 3 for green: its numerator is ``7650 - saturation * w``, with w rising and falling around hue 60."""
    w = ((hue.remainder(HUES) - 60).abs() - 30).clamp(0, 30)
    factor = (65536 * (7650 - saturation * w) + 7650).div(15300, rounding_mode="floor")
    return (value * factor + 16384) >> 15
