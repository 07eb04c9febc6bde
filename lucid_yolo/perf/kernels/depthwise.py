"""Depthwise 3x3 convolutions at stride 1 on channels_last maps, forward and backward.

cuDNN compiles a kernel for each shape of a depthwise convolution when a process first meets it, 0.2 to 0.9 s apiece,
three for every layer. These serve all shapes, and Triton keeps what it has compiled on disk.

A row of a map, W positions of C channels, lies in memory as one line of W * C numbers: the neighbours of a number are
the same line C numbers further left and right, and the lines above and below.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

# Chosen among 18 sizes each by their times at batch 4 and 64 on an H200.
_FILTER_BLOCK, _FILTER_WARPS = 256, 2  # numbers of a line a program
_ROWS = 8  # lines that a program filters one below the other
_GRADIENT_BLOCK, _GRADIENT_WARPS = 256, 4
_PROGRAMS = 512  # that share the sums of a weight gradient
_FREE = ["rows", "height", "width", "mirrored", "lines"]  # a number of these must not make a kernel of its own


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
    """The filter; its gradient for the input is the mirrored filter of the output's."""

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
        return (
            _filter(gradient, weight, mirrored=1) if to_x else None,
            _weight_gradient(x, gradient).view_as(weight) if to_weight else None,
        )


def _filter(x: Tensor, weight: Tensor, *, mirrored: int) -> Tensor:
    y = torch.empty_like(x)  # keeps the memory order
    batch, channels, height, width = x.shape
    rows = batch * height
    grid = (triton.cdiv(width * channels, _FILTER_BLOCK), triton.cdiv(rows, _ROWS))
    _filter_kernel[grid](
        x, weight, y, rows, height, width, channels, mirrored, ROWS=_ROWS, BLOCK=_FILTER_BLOCK, num_warps=_FILTER_WARPS
    )
    return y


def _weight_gradient(x: Tensor, gradient: Tensor) -> Tensor:
    """(C, 9) in the type of the map."""
    batch, channels, height, width = x.shape
    rows, blocks = batch * height, triton.cdiv(width * channels, _GRADIENT_BLOCK)
    lines = triton.cdiv(rows, max(1, min(rows, _PROGRAMS // blocks)))
    parts = triton.cdiv(rows, lines)
    sums = torch.empty(parts * width, channels * 9, device=x.device)
    _gradient_kernel[blocks, parts](
        x, gradient, sums, rows, height, width, channels, lines, BLOCK=_GRADIENT_BLOCK, num_warps=_GRADIENT_WARPS
    )
    return sums.sum(0).view(channels, 9).to(x.dtype)


@triton.jit(do_not_specialize=_FREE)
def _filter_kernel(x, weight, y, rows, height, width, channels, mirrored, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    """Filter up to BLOCK numbers of ROWS lines; each line that is read serves three that are written."""
    length = width * channels
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.program_id(1) * ROWS
    channel = at % channels
    weight_0 = _weight(weight, channel, 0, mirrored)
    weight_1 = _weight(weight, channel, 1, mirrored)
    weight_2 = _weight(weight, channel, 2, mirrored)
    weight_3 = _weight(weight, channel, 3, mirrored)
    weight_4 = _weight(weight, channel, 4, mirrored)
    weight_5 = _weight(weight, channel, 5, mirrored)
    weight_6 = _weight(weight, channel, 6, mirrored)
    weight_7 = _weight(weight, channel, 7, mirrored)
    weight_8 = _weight(weight, channel, 8, mirrored)
    above_left, above, above_right = _line(x, first - 1, at, rows, length, channels)
    left, middle, right = _line(x, first, at, rows, length, channels)
    for row in range(first, tl.minimum(first + ROWS, rows)):
        below_left, below, below_right = _line(x, row + 1, at, rows, length, channels)
        upper = above_left * weight_0 + above * weight_1 + above_right * weight_2
        centre = left * weight_3 + middle * weight_4 + right * weight_5
        lower = below_left * weight_6 + below * weight_7 + below_right * weight_8
        line = row % height
        # The line above the first one of a picture is the last one of another picture.
        total = tl.where(line > 0, upper, 0.0) + centre + tl.where(line < height - 1, lower, 0.0)
        tl.store(y + tl.cast(row, tl.int64) * length + at, total.to(y.dtype.element_ty), mask=at < length)
        above_left, above, above_right = left, middle, right
        left, middle, right = below_left, below, below_right


@triton.jit(do_not_specialize=_FREE)
def _gradient_kernel(x, gradient, sums, rows, height, width, channels, lines, BLOCK: tl.constexpr):  # noqa: N803
    """Add up, for BLOCK numbers of some lines, the products of a gradient with what each of nine weights has met."""
    length = width * channels
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.program_id(1) * lines
    sum_0 = tl.zeros((BLOCK,), tl.float32)
    sum_1 = tl.zeros((BLOCK,), tl.float32)
    sum_2 = tl.zeros((BLOCK,), tl.float32)
    sum_3 = tl.zeros((BLOCK,), tl.float32)
    sum_4 = tl.zeros((BLOCK,), tl.float32)
    sum_5 = tl.zeros((BLOCK,), tl.float32)
    sum_6 = tl.zeros((BLOCK,), tl.float32)
    sum_7 = tl.zeros((BLOCK,), tl.float32)
    sum_8 = tl.zeros((BLOCK,), tl.float32)
    above_left, above, above_right = _line(x, first - 1, at, rows, length, channels)
    left, middle, right = _line(x, first, at, rows, length, channels)
    for row in range(first, tl.minimum(first + lines, rows)):
        below_left, below, below_right = _line(x, row + 1, at, rows, length, channels)
        from_row = tl.load(gradient + tl.cast(row, tl.int64) * length + at, mask=at < length, other=0).to(tl.float32)
        line = row % height
        has_above, has_below = line > 0, line < height - 1
        sum_0 += tl.where(has_above, from_row * above_left, 0.0)
        sum_1 += tl.where(has_above, from_row * above, 0.0)
        sum_2 += tl.where(has_above, from_row * above_right, 0.0)
        sum_3 += from_row * left
        sum_4 += from_row * middle
        sum_5 += from_row * right
        sum_6 += tl.where(has_below, from_row * below_left, 0.0)
        sum_7 += tl.where(has_below, from_row * below, 0.0)
        sum_8 += tl.where(has_below, from_row * below_right, 0.0)
        above_left, above, above_right = left, middle, right
        left, middle, right = below_left, below, below_right
    to = sums + (tl.cast(tl.program_id(1), tl.int64) * length + at) * 9
    inside = at < length
    tl.store(to, sum_0, mask=inside)
    tl.store(to + 1, sum_1, mask=inside)
    tl.store(to + 2, sum_2, mask=inside)
    tl.store(to + 3, sum_3, mask=inside)
    tl.store(to + 4, sum_4, mask=inside)
    tl.store(to + 5, sum_5, mask=inside)
    tl.store(to + 6, sum_6, mask=inside)
    tl.store(to + 7, sum_7, mask=inside)
    tl.store(to + 8, sum_8, mask=inside)


@triton.jit
def _line(x, row, at, rows, length, channels):
    """What a line has to the left, at, and to the right of places, float32; 0 outside of the map."""
    start = x + tl.cast(row, tl.int64) * length + at
    rows_at = row + tl.zeros_like(at)  # the interpreter joins masks of one shape only
    inside = (at < length) & (rows_at >= 0) & (rows_at < rows)
    left = tl.load(start - channels, mask=inside & (at >= channels), other=0).to(tl.float32)
    middle = tl.load(start, mask=inside, other=0).to(tl.float32)
    right = tl.load(start + channels, mask=inside & (at + channels < length), other=0).to(tl.float32)
    return left, middle, right


@triton.jit
def _weight(weight, channel, place, mirrored):
    """One of nine weights of each channel; mirrored: the one on the other side of the centre."""
    return tl.load(weight + channel * 9 + tl.where(mirrored != 0, 8 - place, place)).to(tl.float32)
