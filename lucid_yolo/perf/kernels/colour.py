"""Colour gains and scaling in one pass over the images: the bytes of `lucid_yolo.ops.colour`, scaled."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from lucid_yolo.ops.images import UNIT

_BLOCK = 1024  # pixels a program


def colour_and_scale(images: Tensor, gains: Tensor, *, dtype: torch.dtype) -> Tensor:
    """Apply colour gains and scale to 0 .. 1; see `lucid_yolo.ops.colour_torch.colour_and_scale`.

    Args:
        images: (B, 3, S, S) uint8 RGB in channels_last memory.
        gains: (B, 3) float32, contiguous, on the same device.
        dtype: of the result; what is not float32 is rounded from it.

    Returns:
        (B, 3, S, S) in channels_last memory.
    """
    scaled = torch.empty(images.shape, dtype=dtype, device=images.device, memory_format=torch.channels_last)
    batch, _, height, width = images.shape
    pixels = height * width
    grid = (triton.cdiv(pixels, _BLOCK), batch)
    # A fused product and sum would round once where the definition rounds twice.
    _kernel[grid](images, gains, scaled, pixels, UNIT=UNIT, BLOCK=_BLOCK, enable_fp_fusion=False)
    return scaled


@triton.jit
def _kernel(images, gains, scaled, pixels, UNIT: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    """Colour and scale up to BLOCK pixels of one image; memory is (B, pixels, 3) on both sides."""
    image = tl.program_id(1)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    at = (image.to(tl.int64) * pixels + pixel) * 3
    red = tl.load(images + at, mask=inside, other=0).to(tl.int32)
    green = tl.load(images + at + 1, mask=inside, other=0).to(tl.int32)
    blue = tl.load(images + at + 2, mask=inside, other=0).to(tl.int32)
    gain_h = tl.load(gains + image * 3)
    gain_s = tl.load(gains + image * 3 + 1)
    gain_v = tl.load(gains + image * 3 + 2)

    value = tl.maximum(tl.maximum(red, green), blue)
    spread = value - tl.minimum(tl.minimum(red, green), blue)
    # Divisors of 0 become 1: what they divide is 0 there. No quotient lies half-way.
    by_value = (2 * 255 * 4096 + value) // tl.maximum(2 * value, 1)
    by_range = (2 * 180 * 4096 // 6 + spread) // tl.maximum(2 * spread, 1)
    saturation = (spread * by_value + 2048) >> 12
    offset = tl.where(
        value == red, green - blue, tl.where(value == green, blue - red + 2 * spread, red - green + 4 * spread)
    )
    hue = (offset * by_range + 2048) >> 12
    hue = tl.where(hue < 0, hue + 180, hue)

    shift = _rounded((gain_h - 1.0) * 180.0) % 180 + 180  # of a truncating division: never below 1
    hue = hue + shift
    saturation = tl.minimum(_rounded(saturation.to(tl.float32) * gain_s), 255)
    value = tl.minimum(_rounded(value.to(tl.float32) * gain_v), 255)

    keep = (gain_h == 1.0) & (gain_s == 1.0) & (gain_v == 1.0)
    red = tl.where(keep, red, _channel(hue + 60, saturation, value))
    green = tl.where(keep, green, _channel(hue, saturation, value))
    blue = tl.where(keep, blue, _channel(hue + 120, saturation, value))
    kind = scaled.dtype.element_ty
    tl.store(scaled + at, (red.to(tl.float32) * UNIT).to(kind), mask=inside)
    tl.store(scaled + at + 1, (green.to(tl.float32) * UNIT).to(kind), mask=inside)
    tl.store(scaled + at + 2, (blue.to(tl.float32) * UNIT).to(kind), mask=inside)


@triton.jit
def _rounded(x):
    """Round half to even, to int32. Below 2**22 the remainder is exact, or far from one half."""
    low = tl.floor(x)
    over = x - low
    whole = low.to(tl.int32)
    odd = (whole & 1) == 1
    return whole + ((over > 0.5) | ((over == 0.5) & odd)).to(tl.int32)


@triton.jit
def _channel(hue, saturation, value):
    """Step 3 for green; hue of red and blue come shifted to it. Hue is not negative, and may lie above a turn."""
    w = tl.minimum(tl.maximum(tl.abs(hue % 180 - 60) - 30, 0), 30)
    factor = (65536 * (7650 - saturation * w) + 7650) // 15300
    return (value * factor + 16384) >> 15
