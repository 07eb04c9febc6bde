"""Batch normalisation with and without SiLU over channels_last maps: two kernels forward, two backward.

Each pass reads what it must once. The first kernel of a pair leaves what each split of the rows adds up to in a place
of its own; each program of the second one combines them in the same order. So results are the same in every run, and no
kernel comes in between. The second one walks a split from its end: what was read last is in the cache.

A map (N, C, H, W) in channels_last memory is a matrix of N * H * W rows and C columns.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lucid_yolo.perf.kernels.rows import row_pitch
from lucid_yolo.perf.kernels.tiling import Tiling, tile
from lucid_yolo.perf.machine import count_multiprocessors

TILE = 4096
"""Elements of a tile."""
WARPS = 8
"""Of a program: each thread loads 16 elements at a time, half precision in two loads of 16 bytes."""
INTERPRETED = 4
"""Multiprocessors where there is none: in Triton's interpreter."""
FORWARD, BACKWARD = 3, 2
"""Programs that fit on a multiprocessor: for compute capability 9.0 they take at most 80 and 104 registers a thread."""


def forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    *,
    eps: float,
    momentum: float,
    silu: bool,
) -> tuple[Tensor, Tensor]:
    """Normalise by the statistics of the batch, scale and shift; with ``silu`` that is then activated.

    Args:
        x: (N, C, H, W) float32, bfloat16 or float16 in channels_last memory, N * H * W above 1. It begins at a
            multiple of 16 bytes, as what a convolution makes does; elsewhere sums have another order.
        weight: (C,) float32.
        bias: (C,) float32.
        running_mean: (C,) float32; follows the mean.
        running_var: (C,) float32; follows the unbiased variance.
        eps: added to the variance.
        momentum: share of the batch in the running statistics.
        silu: whether SiLU follows.

    Returns:
        the map in the type and memory order of ``x``, and (2, C) float32: mean and reciprocal standard deviation.
    """
    rows, channels, tiling = _tiling(x, FORWARD)
    y = torch.empty_like(x, memory_format=torch.channels_last)
    partial, statistics = _partial(x, tiling), torch.empty(2, channels, dtype=torch.float32, device=x.device)
    settings = _settings(tiling)
    _moments[tiling.grid](x, partial, rows, channels, tiling.tiles, tiling.splits, **settings)
    _apply[tiling.grid](
        x,
        partial,
        weight,
        bias,
        running_mean,
        running_var,
        y,
        statistics,
        rows,
        channels,
        tiling.tiles,
        tiling.splits,
        eps,
        momentum,
        SILU=silu,
        **settings,
    )
    return y, statistics


def backward(
    gradient: Tensor, x: Tensor, weight: Tensor, bias: Tensor, statistics: Tensor, *, silu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``forward``.

    Args:
        gradient: (N, C, H, W) of the result, in the type of ``x`` and any memory order.
        x: what was normalised.
        weight: (C,) float32.
        bias: (C,) float32.
        statistics: (2, C) float32, as ``forward`` returns them.
        silu: whether SiLU followed.

    Returns:
        gradients of ``x``, in its type and memory order, of ``weight`` and of ``bias``, both (C,) float32.
    """
    rows, channels, tiling = _tiling(x, BACKWARD)
    gradient, pitch = _as_rows(gradient)
    found = torch.empty_like(x, memory_format=torch.channels_last)
    partial, sums = _partial(x, tiling), torch.empty(2, channels, dtype=torch.float32, device=x.device)
    read = (gradient, x, weight, bias, statistics, partial)
    sizes = (rows, channels, pitch, tiling.tiles, tiling.splits)
    settings = _settings(tiling)
    _gradient_sums[tiling.grid](*read, *sizes, SILU=silu, **settings)
    _apply_gradient[tiling.grid](*read, found, sums, *sizes, SILU=silu, **settings)
    return found, sums[1], sums[0]


def _as_rows(gradient: Tensor) -> tuple[Tensor, int]:
    """A gradient as rows of channels, and the distance between two rows in elements.

    The gradient of a part of a concatenated map is read where it lies, if its rows are aligned like those of others.
    """
    channels, pitch = gradient.shape[1], row_pitch(gradient) or 0  # also 0 where one number stands for all
    if pitch >= channels and pitch % 16 == channels % 16 == gradient.data_ptr() % 16 == 0:
        return gradient, pitch
    return _aligned(gradient.contiguous(memory_format=torch.channels_last)), channels


def _aligned(tensor: Tensor) -> Tensor:
    """A tensor that begins at a multiple of 16 bytes: elsewhere loads are narrower, and sums have another order."""
    return tensor.clone() if tensor.data_ptr() % 16 else tensor


def _tiling(x: Tensor, programs: int) -> tuple[int, int, Tiling]:
    """Rows, channels and their tiles, for so many programs a multiprocessor."""
    batch, channels, height, width = x.shape
    rows = batch * height * width
    multiprocessors = count_multiprocessors(x.device.index or 0) if x.is_cuda else INTERPRETED
    return rows, channels, tile(rows, channels, elements=TILE, programs=programs * multiprocessors)


def _settings(tiling: Tiling) -> dict[str, Any]:
    """What is compiled in."""
    blocks = {"BLOCK_ROWS": tiling.block_rows, "BLOCK_CHANNELS": tiling.block_channels}
    return {**blocks, "num_warps": WARPS, "enable_fp_fusion": True}  # its default differs from release to release


def _partial(x: Tensor, tiling: Tiling) -> Tensor:
    """Place for two sums of each split and channel."""
    return torch.empty(2, tiling.splits, x.shape[1], dtype=torch.float32, device=x.device)


# One variant serves every number of rows. Only the alignment of maps and the number of channels decide how wide loads
# are; that of the small tensors must not make further variants.
_SMALL = ["weight", "bias", "running_mean", "running_var", "statistics", "sums"]
_COUNTS = ["rows", "tiles", "splits"]


@triton.jit(do_not_specialize=_COUNTS)
def _moments(
    x,
    partial,
    rows,
    channels,
    tiles,
    splits,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
):
    """Mean and sum of squared deviations of each channel over one split.

    The sums are taken around the mean of the split's first tile. It is the mean of some of the rows, so its distance
    from the mean of all, squared, is at most their variance times the number of tiles: nothing cancels.
    """
    split, column, inside = _columns(channels, BLOCK_CHANNELS)
    first = split * tiles * BLOCK_ROWS
    count = tl.minimum(rows - first, tiles * BLOCK_ROWS).to(tl.float32)
    head, valid = _load(x, first, 0, rows, channels, column, inside, BLOCK_ROWS)
    centre = tl.sum(head, axis=0)[None, :] / tl.minimum(rows - first, BLOCK_ROWS).to(tl.float32)
    total = tl.where(valid, head - centre, 0.0)
    square = total * total
    for at in range(1, tiles):
        value, there = _load(x, first, at, rows, channels, column, inside, BLOCK_ROWS)
        deviation = tl.where(there, value - centre, 0.0)
        total += deviation
        square += deviation * deviation
    off = tl.sum(total, axis=0)[None, :] / count
    place = partial + split * channels + column
    tl.store(place, centre + off, mask=inside)
    tl.store(place + splits * channels, tl.sum(square, axis=0)[None, :] - count * off * off, mask=inside)


@triton.jit(do_not_specialize=[*_COUNTS, *_SMALL])
def _apply(
    x,
    partial,
    weight,
    bias,
    running_mean,
    running_var,
    y,
    statistics,
    rows,
    channels,
    tiles,
    splits,
    eps,
    momentum,
    SILU: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
):
    """Combine the moments of all splits, then write the result for one of them; the first one keeps the statistics."""
    split, column, inside = _columns(channels, BLOCK_CHANNELS)
    # Around the mean of the first split, for the reason that `_moments` gives.
    centre = tl.load(partial + column, mask=inside, other=0.0)
    total = tl.zeros((BLOCK_ROWS, BLOCK_CHANNELS), tl.float32)
    square = tl.zeros((BLOCK_ROWS, BLOCK_CHANNELS), tl.float32)
    for begin in range(0, splits, BLOCK_ROWS):
        other, place, valid = _splits(partial, begin, splits, channels, column, inside, BLOCK_ROWS)
        count = tl.minimum(rows - other * tiles * BLOCK_ROWS, tiles * BLOCK_ROWS).to(tl.float32)
        deviation = tl.where(valid, tl.load(place, mask=valid, other=0.0) - centre, 0.0)
        total += count * deviation
        square += tl.load(place + splits * channels, mask=valid, other=0.0) + count * deviation * deviation
    off = tl.sum(total, axis=0)[None, :] / rows
    mean = centre + off
    squares = tl.sum(square, axis=0)[None, :] - rows * off * off
    squares = tl.where(squares < 0.0, 0.0, squares)  # by rounding; what is not finite stays so
    inverse = 1.0 / tl.sqrt(squares / rows + eps)
    if split == 0:
        tl.store(statistics + column, mean, mask=inside)
        tl.store(statistics + channels + column, inverse, mask=inside)
        _follow(running_mean + column, mean, momentum, inside)
        _follow(running_var + column, squares / (rows - 1), momentum, inside)

    scale = inverse * tl.load(weight + column, mask=inside, other=0.0)
    shift = tl.load(bias + column, mask=inside, other=0.0)
    first = split * tiles * BLOCK_ROWS
    for back in range(tiles):
        at = tiles - 1 - back
        value, valid = _load(x, first, at, rows, channels, column, inside, BLOCK_ROWS)
        result = (value - mean) * scale + shift
        if SILU:
            result = result * _sigmoid(result)
        _store(y, result, first, at, channels, column, valid, BLOCK_ROWS)


@triton.jit(do_not_specialize=[*_COUNTS, *_SMALL])
def _gradient_sums(
    gradient,
    x,
    weight,
    bias,
    statistics,
    partial,
    rows,
    channels,
    pitch,
    tiles,
    splits,
    SILU: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
):
    """Sums over one split of the gradient before SiLU, and of its product with the normalised map."""
    split, column, inside = _columns(channels, BLOCK_CHANNELS)
    mean, inverse, scale, shift = _affine(statistics, weight, bias, channels, column, inside)
    first = split * tiles * BLOCK_ROWS
    total = tl.zeros((BLOCK_ROWS, BLOCK_CHANNELS), tl.float32)
    product = tl.zeros((BLOCK_ROWS, BLOCK_CHANNELS), tl.float32)
    for at in range(tiles):
        value, _valid = _load(x, first, at, rows, channels, column, inside, BLOCK_ROWS)
        given, _valid = _load(gradient, first, at, rows, pitch, column, inside, BLOCK_ROWS)  # 0 where there is none
        normal = (value - mean) * inverse
        if SILU:
            given = given * _slope(normal * scale + shift)
        total += given
        product += given * normal
    place = partial + split * channels + column
    tl.store(place, tl.sum(total, axis=0)[None, :], mask=inside)
    tl.store(place + splits * channels, tl.sum(product, axis=0)[None, :], mask=inside)


@triton.jit(do_not_specialize=[*_COUNTS, *_SMALL])
def _apply_gradient(
    gradient,
    x,
    weight,
    bias,
    statistics,
    partial,
    found,
    sums,
    rows,
    channels,
    pitch,
    tiles,
    splits,
    SILU: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
):
    """Combine the sums of all splits, then write the gradient of one of them; the first one keeps the sums."""
    split, column, inside = _columns(channels, BLOCK_CHANNELS)
    mean, inverse, scale, shift = _affine(statistics, weight, bias, channels, column, inside)
    total = tl.zeros((BLOCK_ROWS, BLOCK_CHANNELS), tl.float32)
    product = tl.zeros((BLOCK_ROWS, BLOCK_CHANNELS), tl.float32)
    for begin in range(0, splits, BLOCK_ROWS):
        _other, place, valid = _splits(partial, begin, splits, channels, column, inside, BLOCK_ROWS)
        total += tl.load(place, mask=valid, other=0.0)
        product += tl.load(place + splits * channels, mask=valid, other=0.0)
    of_bias = tl.sum(total, axis=0)[None, :]
    of_weight = tl.sum(product, axis=0)[None, :]
    if split == 0:
        tl.store(sums + column, of_bias, mask=inside)
        tl.store(sums + channels + column, of_weight, mask=inside)

    share, slope = of_bias / rows, of_weight / rows
    first = split * tiles * BLOCK_ROWS
    for back in range(tiles):
        at = tiles - 1 - back
        value, valid = _load(x, first, at, rows, channels, column, inside, BLOCK_ROWS)
        given, _valid = _load(gradient, first, at, rows, pitch, column, inside, BLOCK_ROWS)
        normal = (value - mean) * inverse
        if SILU:
            given = given * _slope(normal * scale + shift)
        result = inverse * scale * (given - share - normal * slope)
        _store(found, result, first, at, channels, column, valid, BLOCK_ROWS)


@triton.jit
def _columns(channels, BLOCK_CHANNELS: tl.constexpr):
    """Split of this program, its channels (1, BLOCK_CHANNELS), and which of them there are."""
    column = tl.program_id(1) * BLOCK_CHANNELS + tl.arange(0, BLOCK_CHANNELS)[None, :]
    return tl.program_id(0), column, column < channels


@triton.jit
def _load(source, first, at, rows, pitch, column, inside, BLOCK_ROWS: tl.constexpr):
    """Tile number ``at`` of the split that begins at row ``first``, float32, and which of it there is.

    Rows begin ``pitch`` elements after each other.
    """
    row = tl.arange(0, BLOCK_ROWS)[:, None]
    begin = first + at * BLOCK_ROWS
    valid = (row < rows - begin) & inside
    # Large maps have more than 2**31 elements, a tile never.
    value = tl.load(source + begin.to(tl.int64) * pitch + (row * pitch + column), mask=valid, other=0.0)
    return value.to(tl.float32), valid


@triton.jit
def _store(target, value, first, at, channels, column, valid, BLOCK_ROWS: tl.constexpr):
    """Write what belongs where `_load` reads."""
    row = tl.arange(0, BLOCK_ROWS)[:, None]
    begin = (first + at * BLOCK_ROWS).to(tl.int64)
    tl.store(target + begin * channels + (row * channels + column), value.to(target.dtype.element_ty), mask=valid)


@triton.jit
def _splits(partial, begin, splits, channels, column, inside, BLOCK: tl.constexpr):
    """Numbers of some splits, the places of their first sums, and which of them there are."""
    split = begin + tl.arange(0, BLOCK)[:, None]
    return split, partial + (split * channels + column), (split < splits) & inside


@triton.jit
def _affine(statistics, weight, bias, channels, column, inside):
    """Mean, reciprocal deviation, weight and bias of the channels."""
    mean = tl.load(statistics + column, mask=inside, other=0.0)
    inverse = tl.load(statistics + channels + column, mask=inside, other=0.0)
    return (
        mean,
        inverse,
        tl.load(weight + column, mask=inside, other=0.0),
        tl.load(bias + column, mask=inside, other=0.0),
    )


@triton.jit
def _follow(place, value, momentum, inside):
    """Move a running statistic."""
    tl.store(place, (1.0 - momentum) * tl.load(place, mask=inside, other=0.0) + momentum * value, mask=inside)


@triton.jit
def _sigmoid(z):
    return 1.0 / (1.0 + tl.exp(-z))


@triton.jit
def _slope(z):
    """Derivative of SiLU."""
    sigmoid = _sigmoid(z)
    return sigmoid * (1.0 + z * (1.0 - sigmoid))
