"""Lists of different lengths in one array, cut by offsets: list ``i`` is ``values[offsets[i]:offsets[i + 1]]``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Offsets = NDArray[np.int64]


def offsets_of(lengths: Sequence[int] | NDArray[np.int64]) -> Offsets:
    """(N + 1,) offsets of lists of these lengths."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def positions_of(offsets: Offsets, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], Offsets]:
    """Positions of the values of some lists, one list after the other, and the offsets that they then have."""
    starts = offsets[rows]
    lengths = offsets[rows + 1] - starts
    taken = offsets_of(lengths)
    return np.arange(taken[-1]) + np.repeat(starts - taken[:-1], lengths), taken


def joined_offsets(parts: Sequence[Offsets]) -> Offsets:
    """Offsets of arrays of lists that are appended to each other."""
    return offsets_of(np.concatenate([np.diff(part) for part in parts]))
