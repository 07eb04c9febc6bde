"""Windows over a large picture, and which of them answers for which place.

Windows overlap, so that an object at the border of one lies whole in its neighbour. The middles of the overlaps divide
the picture into cores, one a window: a detection counts if its centre lies in the core of the window that found it.
Nothing is then found twice and nothing has to be suppressed. The overlap should be as large as the largest object.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a picture.

    Attributes:
        x: left edge, pixels.
        y: upper edge, pixels.
        width: pixels.
        height: pixels.
        core: left, top, right, bottom of what it answers for, in pixels of the picture; the outermost cores are
            infinite, as centres may lie outside of the picture.
    """

    x: int
    y: int
    width: int
    height: int
    core: tuple[float, float, float, float]

    def crop(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """View this part of a picture (H, W, 3): (height, width, 3), the same memory."""
        return picture[self.y : self.y + self.height, self.x : self.x + self.width]

    def owns(self, centers: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Tell which places this window answers for; each place has exactly one window.

        Args:
            centers: (N, 2) x, y in pixels of the picture.

        Returns:
            (N,) bool.
        """
        low, high = np.array(self.core[:2]), np.array(self.core[2:])
        return np.asarray(((centers >= low) & (centers < high)).all(axis=1), np.bool_)


def windows(width: int, height: int, size: int, overlap: int) -> list[Window]:
    """Cover a picture with square windows, row by row.

    Neighbours overlap by at least ``overlap``: the last window of a row ends at the picture's edge, and the rest is
    spread evenly. A picture that is smaller than a window has one, of its own size.

    Args:
        width: of the picture, pixels, at least 1.
        height: of the picture, pixels, at least 1.
        size: side of the windows, pixels.
        overlap: pixels, at least 0 and less than ``size``.

    Raises:
        ValueError: the overlap is out of range.
    """
    if not 0 <= overlap < size:
        raise ValueError(f"overlap {overlap} must be at least 0 and less than the window's size {size}")
    columns, rows = _spans(width, size, overlap), _spans(height, size, overlap)
    return [
        Window(x, y, min(size, width), min(size, height), (left, top, right, bottom))
        for y, top, bottom in rows
        for x, left, right in columns
    ]


def _spans(length: int, size: int, overlap: int) -> list[tuple[int, float, float]]:
    """Start, and low and high end of the core, of the windows along one side."""
    count = 1 if length <= size else 1 + math.ceil((length - size) / (size - overlap))
    starts = [round(i * (length - size) / (count - 1)) for i in range(count)] if count > 1 else [0]
    middles = [(following + start + size) / 2 for start, following in pairwise(starts)]
    return list(zip(starts, [-math.inf, *middles], [*middles, math.inf], strict=True))
