"""Masks of a data set as the run lengths that its file has: evaluation compares with these and not with outlines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.data.labels.ragged import Offsets, joined_offsets, offsets_of, positions_of


@dataclass(frozen=True, slots=True)
class Run:
    """One mask.

    Attributes:
        height: pixels.
        width: pixels.
        counts: run lengths, as pycocotools compresses them.
    """

    height: int
    width: int
    counts: bytes


@dataclass(frozen=True, slots=True)
class Runs:
    """Masks of N objects, some of which have none.

    Attributes:
        counts: (Q,) uint8, the compressed run lengths of all.
        offsets: (N + 1,) first byte of each.
        sizes: (N, 2) int32 height and width; 0 where there is no mask.
    """

    counts: NDArray[np.uint8]
    offsets: Offsets
    sizes: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.sizes)

    @classmethod
    def of(cls, runs: Sequence[Run | None]) -> Self:
        """Put masks together."""
        counts = [b"" if run is None else run.counts for run in runs]
        sizes = [(0, 0) if run is None else (run.height, run.width) for run in runs]
        return cls(
            np.frombuffer(b"".join(counts), np.uint8),
            offsets_of([len(one) for one in counts]),
            np.array(sizes, np.int32).reshape(-1, 2),
        )

    @classmethod
    def none(cls, count: int) -> Self:
        """No mask of any object."""
        return cls(np.zeros(0, np.uint8), np.zeros(count + 1, np.int64), np.zeros((count, 2), np.int32))

    def __getitem__(self, row: int) -> Run | None:
        """The mask of an object."""
        height, width = self.sizes[row].tolist()
        begin, end = self.offsets[row : row + 2].tolist()
        return Run(height, width, self.counts[begin:end].tobytes()) if height else None

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Pick objects by position."""
        positions, offsets = positions_of(self.offsets, rows)
        return type(self)(self.counts[positions], offsets, self.sizes[rows])

    def joined(self, others: Sequence[Self]) -> Self:
        """Append the objects of others."""
        parts = [self, *others]
        return type(self)(
            np.concatenate([part.counts for part in parts]),
            joined_offsets([part.offsets for part in parts]),
            np.concatenate([part.sizes for part in parts]),
        )
