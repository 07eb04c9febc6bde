"""How a feature map lies in memory: as rows of channels, one a position."""

from __future__ import annotations

from torch import Tensor


def row_pitch(x: Tensor) -> int | None:
    """How far the rows of a map lie from each other.

    Args:
        x: (B, C, H, W).

    Returns:
        Elements from the channels of a position to those of the next one in row-major order, over all pictures: C in
        channels_last memory, more where these are some of the channels of such a map. None: the map lies otherwise.
    """
    (batch, channels, height, width), strides = x.shape, x.stride()
    if channels > 1 and strides[1] != 1:
        return None
    positions = ((width, strides[3], 1), (height, strides[2], width), (batch, strides[0], height * width))
    known = [(stride, rows) for size, stride, rows in positions if size > 1]  # where there is one, a stride is free
    pitch = known[0][0] if known else channels
    return pitch if all(stride == rows * pitch for stride, rows in known) else None
