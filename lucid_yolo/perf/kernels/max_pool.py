"""Max pools at stride 1 over channels_last maps: one kernel forward, one backward.

Forward keeps, in a byte for each output, the place in its window that it was taken from. Backward each position gathers
from the outputs that may have been taken from it: nothing is added by atomics, and a sum has one order.

A map (B, C, H, W) in channels_last memory is B * H * W rows of C channels; where it is some of the channels of a wider
map, the rows lie further apart and are read where they are.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from lucid_yolo.perf.kernels.rows import row_pitch

_ROWS, _CHANNELS, _WARPS = 32, 32, 4
"""A tile, and warps of the program that works on it: each thread has 8 elements, half precision in 16 bytes."""
_UNIT = 16
"""Rows that begin at multiples of so many elements, and so of as many bytes at least, are read 16 bytes at a time."""


class KernelPools:
    """Pools with the kernels; see `lucid_yolo.nn.max_pool.Pools`.

    Maps are not empty, windows at most 15 wide; results are in channels_last memory. Of equal values the first in
    row-major order is taken, of several NaN the last, as in torch.
    """

    def pool(self, x: Tensor, window: int) -> Tensor:
        """Do what ``max_pool2d`` does."""
        y: Tensor = _Pool.apply(x, window)  # type: ignore[no-untyped-call]
        return y


def try_out(dtype: torch.dtype, device: torch.device, window: int) -> None:
    """Compile and launch all there is for a type of maps and a window: rows that suit wide loads, and others."""
    for channels in (_UNIT, _UNIT + 1):
        x = torch.zeros(1, channels, 2, 2, dtype=dtype, device=device)
        gather(*pool(x, window), window)


class _Pool(torch.autograd.Function):
    """Keeps a byte for each output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, window: int) -> Tensor:
        y, taken = pool(x, window)
        ctx.save_for_backward(taken)
        ctx.window = window
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (taken,) = ctx.saved_tensors
        return gather(gradient, taken, ctx.window), None


def pool(x: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """Maxima, and the place of each in its window.

    Args:
        x: (B, C, H, W), read where it lies if that has a `row_pitch`.
        window: side of the centred window in pixels, odd, at most 15.

    Returns:
        both (B, C, H, W) in channels_last memory: maxima in the type of ``x``, and uint8 places in row-major order.
    """
    x, pitch = _in_rows(x)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    taken = torch.empty_like(y, dtype=torch.uint8)
    _pool_kernel[_grid(x)](x, y, taken, *_sizes(x, pitch), WINDOW=window, **_settings(x, pitch))
    return y, taken


def gather(gradient: Tensor, taken: Tensor, window: int) -> Tensor:
    """Sums, in float32, of the gradients of the outputs that were taken from each position.

    Args:
        gradient: (B, C, H, W) of the maxima, read like a map.
        taken: their places, as `pool` returns them.
        window: side.

    Returns:
        (B, C, H, W) in channels_last memory, in the type of ``gradient``.
    """
    gradient, pitch = _in_rows(gradient)
    found = torch.empty_like(taken, dtype=gradient.dtype)  # keeps the memory order
    sizes = _sizes(gradient, pitch)
    _gather_kernel[_grid(found)](gradient, taken, found, *sizes, WINDOW=window, **_settings(gradient, pitch))
    return found


def _in_rows(x: Tensor) -> tuple[Tensor, int]:
    """A map that has a pitch, copied where it must be, and the pitch."""
    pitch = row_pitch(x)
    return (x, pitch) if pitch is not None else (x.contiguous(memory_format=torch.channels_last), x.shape[1])


def _grid(x: Tensor) -> tuple[int, int]:
    return triton.cdiv(x.numel() // x.shape[1], _ROWS), triton.cdiv(x.shape[1], _CHANNELS)


def _unit(x: Tensor, pitch: int) -> int:
    is_aligned = pitch % _UNIT == 0 and x.shape[1] % _UNIT == 0 and x.data_ptr() % 16 == 0
    return _UNIT if is_aligned else 1


def _sizes(x: Tensor, pitch: int) -> tuple[int, ...]:
    """Rows, height, width, and pitch and channels in units."""
    batch, channels, height, width = x.shape
    unit = _unit(x, pitch)
    return batch * height * width, height, width, pitch // unit, channels // unit


def _settings(x: Tensor, pitch: int) -> dict[str, Any]:
    """What is compiled in."""
    return {"UNIT": _unit(x, pitch), "ROWS": _ROWS, "CHANNELS": _CHANNELS, "num_warps": _WARPS}


# The unit alone decides how wide loads are: two variants a type serve maps of all sizes.
_SIZES = ["rows", "height", "width", "pitch", "channels"]


@triton.jit(do_not_specialize=["x", "y", "taken", *_SIZES])
def _pool_kernel(
    x,
    y,
    taken,
    rows,
    height,
    width,
    pitch,
    channels,
    WINDOW: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Maxima of a tile, and their places."""
    margin: tl.constexpr = WINDOW // 2
    at, line, column, channel, inside = _tile(rows, height, width, channels * UNIT, ROWS, CHANNELS)
    source = _begin(x, pitch * UNIT, UNIT, ROWS) + channel
    largest = tl.full((ROWS, CHANNELS), float("-inf"), tl.float32)
    # The first one inside of the map, should there be nothing above -inf.
    first = tl.maximum(margin - line, 0) * WINDOW + tl.maximum(margin - column, 0)
    place = tl.zeros((ROWS, CHANNELS), tl.int32) + first
    for i in range(WINDOW):
        for j in tl.static_range(WINDOW):
            there = inside & _is_inside(line + i - margin, height) & _is_inside(column + j - margin, width)
            beside = (at + (i - margin) * width + j - margin) * (pitch * UNIT)
            value = tl.load(source + beside, mask=there, other=float("-inf")).to(tl.float32)
            is_larger = (value > largest) | (value != value)  # noqa: PLR0124 - NaN
            largest = tl.where(is_larger, value, largest)
            place = tl.where(is_larger, i * WINDOW + j, place)
    to = at * (channels * UNIT) + channel
    tl.store(_begin(y, channels * UNIT, UNIT, ROWS) + to, largest.to(y.dtype.element_ty), mask=inside)
    tl.store(_begin(taken, channels * UNIT, UNIT, ROWS) + to, place.to(tl.uint8), mask=inside)


@triton.jit(do_not_specialize=["gradient", "taken", "found", *_SIZES])
def _gather_kernel(
    gradient,
    taken,
    found,
    rows,
    height,
    width,
    pitch,
    channels,
    WINDOW: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Gradients of the positions of a tile. The output of whose window one is at a place lies on its other side."""
    margin: tl.constexpr = WINDOW // 2
    at, line, column, channel, inside = _tile(rows, height, width, channels * UNIT, ROWS, CHANNELS)
    source = _begin(gradient, pitch * UNIT, UNIT, ROWS) + channel
    places = _begin(taken, channels * UNIT, UNIT, ROWS) + channel
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    for i in range(WINDOW):
        for j in tl.static_range(WINDOW):
            there = inside & _is_inside(line + margin - i, height) & _is_inside(column + margin - j, width)
            beside = at + (margin - i) * width + margin - j
            place = tl.load(places + beside * (channels * UNIT), mask=there, other=255)
            value = tl.load(source + beside * (pitch * UNIT), mask=there, other=0.0).to(tl.float32)
            total += tl.where(place == i * WINDOW + j, value, 0.0)
    to = _begin(found, channels * UNIT, UNIT, ROWS) + (at * (channels * UNIT) + channel)
    tl.store(to, total.to(found.dtype.element_ty), mask=inside)


@triton.jit
def _tile(rows, height, width, channels, ROWS: tl.constexpr, CHANNELS: tl.constexpr):
    """Rows of this program (ROWS, 1), counted from its first; their lines and columns; channels (1, CHANNELS); mask."""
    at = tl.arange(0, ROWS)[:, None]
    row = tl.program_id(0) * ROWS + at
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    return at, row // width % height, row % width, channel, (row < rows) & (channel < channels)


@triton.jit
def _begin(memory, pitch, UNIT: tl.constexpr, ROWS: tl.constexpr):
    """Where the first row of this program lies. Large maps have more than 2**31 elements, what a tile reads has not."""
    return tl.multiple_of(memory + tl.cast(tl.program_id(0) * ROWS, tl.int64) * pitch, UNIT)


@triton.jit
def _is_inside(at, size):
    return (at >= 0) & (at < size)
