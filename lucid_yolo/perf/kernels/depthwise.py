"""Depthwise 3x3 convolutions at stride 1 on channels_last maps, forward and backward.

cuDNN compiles a kernel for each shape of a depthwise convolution when a process first meets it, 0.2 to 0.9 s apiece,
three for every layer. These serve all shapes, and Triton keeps what it has compiled on disk.

A program has some neighbouring columns of one picture and some of its channels, and walks down its rows. What it has
read of a row serves the rows above and below.
"""

# mypy: disable-error-code="assignment, no-untyped-def, untyped-decorator"
# ruff: noqa: N803
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from lucid_yolo.perf.kernels.walks import Summation, Walks, Window, Windows, share_out

# The fastest, at batch 4 and 64 on an H200, of 27 (filter) and 30 (gradient) windows and numbers of programs, 7 sums.
FILTER = Windows(
    aligned=Window(columns=8, channels=32, rows=4, warps=2, programs=512),
    other=Window(columns=16, channels=8, rows=4, warps=1, programs=1024),
)
GRADIENT = Windows(
    aligned=Window(columns=8, channels=32, rows=2, warps=2, programs=512),
    other=Window(columns=16, channels=8, rows=2, warps=1, programs=512),
)
SUM = Summation(shares=512, numbers=8, warps=8)


def depthwise(x: Tensor, weight: Tensor) -> Tensor:
    """Filter each channel by its own 3x3 weights; outside of the map is 0. Sums are float32, in a fixed order.

    Args:
        x: (B, C, H, W) on CUDA.
        weight: (C, 1, 3, 3), of the same type.

    Returns:
        (B, C, H, W) in channels_last memory.
    """
    return Depthwise.apply(x, weight)  # type: ignore[no-any-return, no-untyped-call]


class Depthwise(torch.autograd.Function):
    """The filter; its gradient for the input is the output's, filtered by the mirrored weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """Filter."""
        x, weight = x.contiguous(memory_format=torch.channels_last), weight.contiguous()
        ctx.save_for_backward(x, weight)
        return _filter(x, weight, mirrored=0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Gradients of input and weight, where they are asked for."""
        x, weight = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        to_x, to_weight = ctx.needs_input_grad
        if not to_weight:
            return (_filter(gradient, weight, mirrored=1) if to_x else None), None
        # A layer whose input needs no gradient is too rare for a kernel of its own.
        return _gradients(x, weight, gradient)


def _filter(x: Tensor, weight: Tensor, *, mirrored: int) -> Tensor:
    y = torch.empty_like(x)  # keeps the memory order
    window = FILTER.of(x.shape[1])
    walks = _share_out(x, window)
    _filter_kernel[(walks.programs,)](x, weight, y, *_sizes(x, walks), mirrored, **_settings(window))
    return y


def _gradients(x: Tensor, weight: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    channels = x.shape[1]
    window = GRADIENT.of(channels)
    walks = _share_out(x, window)
    to_x, to_weight = torch.empty_like(x), torch.empty_like(weight)
    sums = torch.empty(walks.shares, 9, channels, dtype=torch.float32, device=x.device)
    _gradient_kernel[(walks.programs,)](x, weight, gradient, to_x, sums, *_sizes(x, walks), **_settings(window))
    _sum_kernel[(triton.cdiv(9 * channels, SUM.numbers),)](
        sums, to_weight, walks.shares, channels, SHARES=SUM.shares, NUMBERS=SUM.numbers, num_warps=SUM.warps
    )
    return to_x, to_weight


def _share_out(x: Tensor, window: Window) -> Walks:
    batch, channels, height, width = x.shape
    return share_out(batch, channels, height, width, window)


def _sizes(x: Tensor, walks: Walks) -> tuple[int, ...]:
    """Channels, height and width of a map, and how its rows are shared out."""
    return (*x.shape[1:], walks.lines, walks.groups)


def _settings(window: Window) -> dict[str, Any]:
    """What is compiled in."""
    sizes = {"ROWS": window.rows, "COLUMNS": window.columns, "CHANNELS": window.channels}
    return {**sizes, "num_warps": window.warps, "enable_fp_fusion": True}  # its default differs from release to release


# Only the channels and the alignment of maps decide how wide loads are; nothing else must make further variants.
_FREE = ["weight", "height", "width", "lines", "groups"]


@triton.jit(do_not_specialize=[*_FREE, "mirrored"])
def _filter_kernel(
    x,
    weight,
    y,
    channels,
    height,
    width,
    lines,
    groups,
    mirrored,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Filter the rows of a walk."""
    start, first, last, column, channel, _share = _walk(channels, height, width, lines, groups, COLUMNS, CHANNELS)
    weights = _weights(weight, channel, channels, mirrored)
    above = _neighbours(x + start, first - 1, height, column, width, channel, channels)
    here = _neighbours(x + start, first, height, column, width, channel, channels)
    for row in range(first, last, ROWS):
        read = (above, here)
        for step in tl.static_range(ROWS):
            read += (_neighbours(x + start, row + step + 1, height, column, width, channel, channels),)
        for step in tl.static_range(ROWS):
            total = _weigh(weights, read[step], read[step + 1], read[step + 2])
            _store(y + start, total, row + step, last, column, width, channel, channels)
        above, here = read[ROWS], read[ROWS + 1]


@triton.jit(do_not_specialize=_FREE)
def _gradient_kernel(
    x,
    weight,
    gradient,
    to_x,
    sums,
    channels,
    height,
    width,
    lines,
    groups,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Filter a gradient, and add up its products with what each of nine weights has met.

    An input has met its neighbour in the gradient through the weight on the other side of the centre.
    """
    start, first, last, column, channel, share = _walk(channels, height, width, lines, groups, COLUMNS, CHANNELS)
    weights = _weights(weight, channel, channels, 1)
    nothing = tl.zeros((COLUMNS, CHANNELS), tl.float32)
    found = (nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing)
    above = _neighbours(gradient + start, first - 1, height, column, width, channel, channels)
    here = _neighbours(gradient + start, first, height, column, width, channel, channels)
    for row in range(first, last, ROWS):
        read, met = (above, here), ()
        for step in tl.static_range(ROWS):
            read += (_neighbours(gradient + start, row + step + 1, height, column, width, channel, channels),)
            met += (_load(x + start, row + step, last, column, width, channel, channels),)
        for step in tl.static_range(ROWS):
            found = _add_products(found, met[step], read[step], read[step + 1], read[step + 2])
            total = _weigh(weights, read[step], read[step + 1], read[step + 2])
            _store(to_x + start, total, row + step, last, column, width, channel, channels)
        above, here = read[ROWS], read[ROWS + 1]
    to = sums + tl.cast(share, tl.int64) * 9 * channels + channel
    for place in tl.static_range(9):
        in_all = tl.sum(found[8 - place], axis=0)[None, :]
        tl.store(to + place * channels, in_all, mask=channel < channels)


@triton.jit(do_not_specialize=["to_weight", "shares"])
def _sum_kernel(sums, to_weight, shares, channels, SHARES: tl.constexpr, NUMBERS: tl.constexpr):
    """Add up what all walks have found for some of the weights."""
    share = tl.arange(0, SHARES)[:, None]
    number = tl.program_id(0) * NUMBERS + tl.arange(0, NUMBERS)[None, :]
    inside = number < 9 * channels
    total = tl.zeros((SHARES, NUMBERS), tl.float32)
    for begin in range(0, shares, SHARES):
        at = sums + tl.cast(begin, tl.int64) * 9 * channels + (share * 9 * channels + number)
        total += tl.load(at, mask=(share < shares - begin) & inside, other=0.0)
    in_all = tl.sum(total, axis=0)[None, :].to(to_weight.dtype.element_ty)
    tl.store(to_weight + number % channels * 9 + number // channels, in_all, mask=inside)


@triton.jit
def _walk(channels, height, width, lines, groups, COLUMNS: tl.constexpr, CHANNELS: tl.constexpr):
    """Where a program works: its picture begins ``start`` numbers from the first one's, its rows end before ``last``.

    Programs that follow each other are neighbours in memory. ``share`` counts walks through the same channels.
    """
    blocks = tl.cdiv(channels, CHANNELS)
    across = tl.cdiv(width, COLUMNS)
    share = tl.program_id(0) // blocks
    group = share // across
    channel = tl.program_id(0) % blocks * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    column = share % across * COLUMNS + tl.arange(0, COLUMNS)[:, None]
    start = tl.cast(group // groups, tl.int64) * height * width * channels
    first = group % groups * lines
    return start, first, tl.minimum(first + lines, height), column, channel, share


@triton.jit
def _weights(weight, channel, channels, mirrored):
    """Nine weights of each channel; mirrored: each one the one on the other side of the centre."""
    found = ()
    for place in tl.static_range(9):
        at = weight + channel * 9 + tl.where(mirrored != 0, 8 - place, place)
        found += (tl.load(at, mask=channel < channels, other=0).to(tl.float32),)
    return found


@triton.jit
def _neighbours(x, row, height, column, width, channel, channels):
    """What a row of a picture has to the left, at, and to the right of columns, float32; 0 outside of the picture."""
    return (
        _load(x, row, height, column - 1, width, channel, channels),
        _load(x, row, height, column, width, channel, channels),
        _load(x, row, height, column + 1, width, channel, channels),
    )


@triton.jit
def _load(x, row, end, column, width, channel, channels):
    """Numbers of a row of a picture, float32; 0 from row ``end`` on, and outside of the picture."""
    at, inside = _at(x, row, end, column, width, channel, channels)
    return tl.load(at, mask=inside, other=0).to(tl.float32)


@triton.jit
def _store(y, value, row, end, column, width, channel, channels):
    """Write what belongs where `_load` reads."""
    at, inside = _at(y, row, end, column, width, channel, channels)
    tl.store(at, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _at(x, row, end, column, width, channel, channels):
    """Places in a picture, and which of them there are."""
    rows = row + tl.zeros_like(column)  # the interpreter joins masks of tensors only
    inside = (rows >= 0) & (rows < end) & (column >= 0) & (column < width) & (channel < channels)
    # A picture may have more than 2**31 numbers, a row never.
    return x + tl.cast(row, tl.int64) * width * channels + (column * channels + channel), inside


@triton.jit
def _weigh(weights, above, here, below):
    """Sum of nine neighbours, each with its weight."""
    total = weights[0] * above[0]
    for place in tl.static_range(1, 3):
        total += weights[place] * above[place]
    for place in tl.static_range(3):
        total += weights[3 + place] * here[place]
    for place in tl.static_range(3):
        total += weights[6 + place] * below[place]
    return total


@triton.jit
def _add_products(sums, x, above, here, below):
    """Add the products of a number with each of nine neighbours to their sums."""
    found = ()
    for place in tl.static_range(3):
        found += (sums[place] + x * above[place],)
    for place in tl.static_range(3):
        found += (sums[3 + place] + x * here[place],)
    for place in tl.static_range(3):
        found += (sums[6 + place] + x * below[place],)
    return found
