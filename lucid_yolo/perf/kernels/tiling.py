"""How the rows of a feature map are shared out among the programs of a kernel that reduces over them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Tiling:
    """A grid of splits by blocks of channels; each program walks down the tiles of its split.

    Attributes:
        block_rows: rows of a tile, a power of two.
        block_channels: channels of a tile, a power of two.
        tiles: tiles of a split, one below the other; those behind the last row are empty.
        splits: programs that share the rows of one block of channels. Each has at least one row.
        blocks: blocks of channels.
    """

    block_rows: int
    block_channels: int
    tiles: int
    splits: int
    blocks: int

    @property
    def grid(self) -> tuple[int, int]:
        """Programs of a launch."""
        return self.splits, self.blocks


@cache
def tile(rows: int, channels: int, *, elements: int, programs: int) -> Tiling:
    """Choose tiles: a formula, for a search at run time would wait for the device and find something else each time.

    A program of the second of two kernels adds up what all splits have found. So there are no more splits than half of
    a split has rows, or a program would read more of that than of the map; and no more programs than run at a time.

    Args:
        rows: positions, N * H * W.
        channels: of the map.
        elements: of a tile, a power of two, at least 64.
        programs: that the device runs at a time.
    """
    block_channels = _block_channels(channels)
    blocks, block_rows = -(-channels // block_channels), elements // block_channels
    in_all = -(-rows // block_rows)
    at_most = min(in_all, max(1, math.isqrt(rows // 2)), max(1, programs // blocks))
    tiles = -(-in_all // at_most)
    return Tiling(block_rows, block_channels, tiles, -(-in_all // tiles), blocks)


def _block_channels(channels: int) -> int:
    """64 where that fits, else 32: the rest of the last block is idle. 16 where there are no more."""
    if channels <= 16:
        return 16
    return 64 if channels % 64 == 0 else 32
