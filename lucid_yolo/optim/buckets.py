"""Stacks of zero-padded matrices: a few batched products instead of several for every matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from lucid_yolo.optim.newton_schulz import GRAM_STEPS, WIDE, newton_schulz

ALIGNMENT = 8
"""Sides of padded stacks are multiples of it: products of odd sizes are slow on a GPU."""

BUCKET_COST = {"cpu": 1e7, "cuda": 4e9}
"""What a further stack costs by itself (some forty launches), in operations that the device does in that time."""

Shape = tuple[int, int]


@lru_cache(maxsize=32)
def plan_buckets(shapes: tuple[Shape, ...], bucket_cost: float) -> tuple[tuple[int, ...], ...]:
    """Divide matrices into stacks so that padding and launches together cost little.

    Starts with one stack a shape and unites the two whose union saves most until no union saves anything.

    Args:
        shapes: (rows, columns) of every matrix.
        bucket_cost: cost of a stack beside its operations.

    Returns:
        For each stack the positions of its matrices, ascending.
    """
    by_shape: dict[Shape, list[int]] = {}
    for position, shape in enumerate(shapes):
        by_shape.setdefault(shape, []).append(position)
    stacks = [_Stack(wide(shape), uniform=True, members=tuple(m)) for shape, m in sorted(by_shape.items())]
    while len(stacks) > 1:
        saving, i, j = max(
            (a.cost + b.cost + bucket_cost - a.join(b).cost, i, j)
            for i, a in enumerate(stacks)
            for j, b in enumerate(stacks[:i])
        )
        if saving <= 0:
            break
        stacks[j] = stacks[j].join(stacks.pop(i))
    return tuple(tuple(sorted(stack.members)) for stack in stacks)


def wide(shape: Shape) -> Shape:
    """Turn a shape so that it has at least as many columns as rows."""
    return min(shape), max(shape)


@dataclass(frozen=True)
class _Stack:
    shape: Shape
    uniform: bool
    members: tuple[int, ...]
    cost: float = field(init=False)

    def __post_init__(self) -> None:
        rows, columns = self.shape if self.uniform else padded(self.shape)
        object.__setattr__(self, "cost", float(len(self.members) * rows * rows * (20 * columns + 10 * rows)))

    def join(self, other: _Stack) -> _Stack:
        shape = max(self.shape[0], other.shape[0]), max(self.shape[1], other.shape[1])
        return _Stack(shape, uniform=False, members=self.members + other.members)


def padded(shape: Shape) -> Shape:
    """Round both sides up to the alignment."""
    return -(-shape[0] // ALIGNMENT) * ALIGNMENT, -(-shape[1] // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Bucket:
    """A stack of matrices that lie one after the other in a flat buffer.

    Attributes:
        start: first element in the flat buffer.
        stop: one past the last.
        shape: (matrices, rows, columns) of the stack.
        scale: (matrices, 1, 1) float32 factor of the orthogonalized matrices.
        pack: int32 positions in the flat buffer of every element of the stack, wide and padded; None where the
            matrices have one shape and lie row by row, so that a view is the stack.
        unpack: int32 positions in the stack of the elements from ``start`` to ``stop``.
    """

    start: int
    stop: int
    shape: tuple[int, int, int]
    scale: Tensor
    pack: Tensor | None
    unpack: Tensor | None

    def orthogonalize(self, flat: Tensor, *, out: Tensor, steps: int) -> None:
        """Orthogonalize and scale the matrices.

        Args:
            flat: the flat buffer; its last element is 0, which padding reads.
            out: float32 buffer for the directions, of the same order; written from ``start`` to ``stop``.
            steps: Newton-Schulz steps.
        """
        if self.pack is None or self.unpack is None:
            x = flat[self.start : self.stop].view(self.shape).float()
            directions = out[self.start : self.stop].view(self.shape)
            if self.shape[1] <= self.shape[2]:
                torch.mul(_run(x, steps), self.scale, out=directions)
            else:
                torch.mul(_run(x.mT, steps), self.scale, out=directions.mT)
            return
        x = flat.index_select(0, self.pack).view(self.shape).float()
        directions = _run(x, steps).mul_(self.scale).flatten()
        torch.index_select(directions, 0, self.unpack, out=out[self.start : self.stop])


def _run(x: Tensor, steps: int) -> Tensor:
    return newton_schulz(x, steps=steps, gram_steps=GRAM_STEPS if x.shape[-1] > WIDE * x.shape[-2] else 1)


def make_bucket(matrices: Sequence[Tensor], *, start: int, zero: int, gain: float) -> Bucket:
    """Describe a stack.

    Args:
        matrices: dense tensors of two or more dimensions whose memory lies one after the other in the flat buffer. A
            tensor is seen as (first dimension, all others); the order of its columns is that of its memory, which does
            not
            matter: the iteration commutes with permutations of rows and columns.
        start: position of the first in the flat buffer.
        zero: a position in the flat buffer that holds 0.
        gain: factor of every matrix beside Muon's 0.2 * sqrt(max(rows, columns)).
    """
    device = matrices[0].device
    shapes = [matrix_shape(m) for m in matrices]
    scale = torch.tensor([gain * 0.2 * math.sqrt(max(s)) for s in shapes], device=device).view(-1, 1, 1)
    stop = start + sum(m.numel() for m in matrices)
    orders = [_row_order(m) for m in matrices]
    if len(set(shapes)) == 1 and all(bool((o.flatten() == torch.arange(o.numel())).all()) for o in orders):
        return Bucket(start, stop, (len(matrices), *shapes[0]), scale, pack=None, unpack=None)
    rows, columns = padded((max(wide(s)[0] for s in shapes), max(wide(s)[1] for s in shapes)))
    pack = torch.full((len(matrices), rows, columns), zero)
    unpack = torch.empty(stop - start, dtype=torch.long)
    cells = torch.arange(pack.numel()).view(pack.shape)
    offset = 0
    for i, order in enumerate(orders):
        turned = order if order.shape[0] <= order.shape[1] else order.mT
        corner = slice(turned.shape[0]), slice(turned.shape[1])
        pack[i][corner] = turned + (start + offset)
        unpack[turned + offset] = cells[i][corner]
        offset += order.numel()
    positions = (t.flatten().to(device, torch.int32) for t in (pack, unpack))
    return Bucket(start, stop, (len(matrices), rows, columns), scale, *positions)


def matrix_shape(tensor: Tensor) -> Shape:
    """Rows and columns of a tensor of two or more dimensions seen as a matrix: its first dimension and all others."""
    rows = tensor.shape[0]
    return rows, tensor.numel() // rows


def _row_order(tensor: Tensor) -> Tensor:
    """Memory offset of every element of the matrix (rows, columns), columns in the order of the first row's memory."""
    offsets = torch.arange(tensor.numel()).as_strided(tensor.shape, tensor.stride()).reshape(matrix_shape(tensor))
    return offsets[:, offsets[0].argsort()]
