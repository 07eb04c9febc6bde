"""Anchor points: one a cell of each pyramid level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Anchors:
    """Anchor points of all levels, level-major and row-major, as the heads flatten their outputs.

    Attributes:
        centers: (A, 2) x, y in pixels of the canvas.
        strides: (A,) pixels.
    """

    centers: Tensor
    strides: Tensor

    def __len__(self) -> int:
        return self.strides.shape[0]

    def to(self, device: torch.device | str) -> Anchors:
        """Move to a device; nothing is copied when they are there."""
        return Anchors(self.centers.to(device), self.strides.to(device))

    def origins(self) -> Tensor:
        """(A, 4) x, y, x, y: the centre once for each corner of a box, in pixels."""
        return self.centers.repeat(1, 2)

    def signed_strides(self) -> Tensor:
        """(A, 4) -s, -s, s, s: what one unit of left, top, right, bottom moves a corner by, in pixels."""
        return torch.stack((-self.strides, -self.strides, self.strides, self.strides), dim=-1)


def make_anchors(image_size: int, strides: Sequence[int]) -> Anchors:
    """Place a point at the centre of every cell: ``(i + 0.5) * stride``.

    Args:
        image_size: side of the square canvas in pixels, a multiple of every stride.
        strides: pixels a cell of each level, in the order of the heads.

    Returns:
        Float32 anchors on the CPU.

    Raises:
        ValueError: the size is not a positive multiple of every stride.
    """
    if image_size <= 0 or any(image_size % stride for stride in strides):
        raise ValueError(f"image_size {image_size} must be a positive multiple of each of the strides {tuple(strides)}")
    centers, sizes = [], []
    for stride in strides:
        line = (torch.arange(image_size // stride, dtype=torch.float32) + 0.5) * stride
        rows, columns = torch.meshgrid(line, line, indexing="ij")
        centers.append(torch.stack((columns, rows), dim=-1).reshape(-1, 2))
        sizes.append(torch.full((line.numel() ** 2,), float(stride)))
    return Anchors(torch.cat(centers), torch.cat(sizes))
