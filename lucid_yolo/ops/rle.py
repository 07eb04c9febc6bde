"""Masks as run lengths, COCO's compressed form: a mask of a large picture takes a few hundred bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pycocotools import mask as coco_mask


@dataclass(frozen=True, slots=True)
class Rle:
    """A mask.

    Attributes:
        height: pixels.
        width: pixels.
        counts: lengths of the runs, column by column, as pycocotools compresses them.
    """

    height: int
    width: int
    counts: bytes

    @classmethod
    def encode(cls, mask: NDArray[np.bool_]) -> Rle:
        """Compress a mask, (H, W) bool."""
        return cls.encode_part(mask, left=0, top=0, height=mask.shape[0], width=mask.shape[1])

    @classmethod
    def encode_part(cls, part: NDArray[np.bool_], *, left: int, top: int, height: int, width: int) -> Rle:
        """Compress a mask that is empty outside of a part: the time goes with the size of the part.

        Args:
            part: (h, w) bool, inside of the mask.
            left: column of the mask at which the part begins.
            top: row of the mask at which the part begins.
            height: of the mask, pixels.
            width: of the mask, pixels.
        """
        rows, columns = part.shape
        # One empty pixel below each column of the part ends its last run; the first pixel begins the first one.
        padded = np.zeros(columns * (rows + 1) + 1, np.bool_)
        padded[1:].reshape(columns, rows + 1)[:, :rows] = part.T
        column, row = np.divmod(np.flatnonzero(padded[1:] != padded[:-1]), rows + 1)
        edges = (left + column) * height + top + row
        if rows == height:  # a run may go on at the top of the next column
            ends, starts = edges[1:-1:2], edges[2::2]
            edges = np.delete(edges, 1 + 2 * np.flatnonzero(ends == starts)[:, None] + np.arange(2))
        total = height * width
        if not len(edges) or edges[-1] != total:
            edges = np.append(edges, total)
        plain = {"size": [height, width], "counts": np.diff(edges, prepend=0)}
        return cls(height, width, coco_mask.frPyObjects(plain, height, width)["counts"])

    def placed(self, *, left: int, top: int, height: int, width: int) -> Rle:
        """Put the mask into a larger one that is empty around it.

        Args:
            left: column of the larger mask at which this one begins.
            top: row of the larger mask at which this one begins.
            height: of the larger mask, pixels.
            width: of the larger mask, pixels.
        """
        return Rle.encode_part(self.decode(), left=left, top=top, height=height, width=width)

    def decode(self) -> NDArray[np.bool_]:
        """Write the mask out, (H, W) bool."""
        mask: NDArray[np.bool_] = coco_mask.decode(self.as_coco()).astype(np.bool_)
        return mask

    def as_coco(self) -> dict[str, object]:
        """The same as pycocotools takes it; a JSON file wants ``counts`` as text: see ``as_json``."""
        return {"size": [self.height, self.width], "counts": self.counts}

    def as_json(self) -> dict[str, object]:
        """The same as a COCO file has it."""
        return {"size": [self.height, self.width], "counts": self.counts.decode("ascii")}
