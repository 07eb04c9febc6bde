"""How maps are shared out among the programs of a kernel that walks down their rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

ALIGNED = 16
"""Triton compiles another variant of a kernel where this divides an argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a program has in its registers.

    Attributes:
        columns: neighbouring columns of a map, a power of two.
        channels: neighbouring channels, a power of two.
        rows: that it takes at a time: what it reads of them waits for memory together.
        warps: that share it.
        programs: that keep the device busy. There are fewer where a map is small, and more where it is large.
    """

    columns: int
    channels: int
    rows: int
    warps: int
    programs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Windows of a kernel.

    Attributes:
        aligned: where numbers of channels are multiples of `ALIGNED`: a thread reads several neighbours at once.
        other: elsewhere.
    """

    aligned: Window
    other: Window

    def of(self, channels: int) -> Window:
        """Choose by the channels of a map."""
        return self.other if channels % ALIGNED else self.aligned


@dataclass(frozen=True, slots=True, kw_only=True)
class Summation:
    """What a program adds up at a time.

    Attributes:
        shares: of each number, a power of two.
        numbers: beside each other, a power of two.
        warps: that share them.
    """

    shares: int
    numbers: int
    warps: int


@dataclass(frozen=True, slots=True)
class Walks:
    """A walk for each picture, group of its rows, window of its columns and window of its channels.

    Attributes:
        lines: rows of a walk, one below the other; the last one of a picture may have fewer.
        groups: walks one below the other.
        shares: walks through the same channels, of all pictures.
        programs: walks.
    """

    lines: int
    groups: int
    shares: int
    programs: int


@cache
def share_out(batch: int, channels: int, height: int, width: int, window: Window) -> Walks:
    """Choose how long walks are: as long as there are still enough of them.

    Long walks read fewer rows twice, and leave fewer sums to be added up.

    Args:
        batch: pictures.
        channels: of the map.
        height: rows of the map.
        width: columns of the map.
        window: of a program.
    """
    across, blocks = -(-width // window.columns), -(-channels // window.channels)
    enough = -(-window.programs // (batch * across * blocks))
    lines = max(1, -(-height // window.rows) // enough) * window.rows
    groups = -(-height // lines)
    shares = batch * groups * across
    return Walks(lines, groups, shares, shares * blocks)
