"""From stored bytes to the numbers that the network reads."""

from __future__ import annotations

import torch
from torch import Tensor

UNIT = 1.0 / 255.0


def scale_images(images: Tensor, *, memory_format: torch.memory_format) -> Tensor:
    """Scale bytes to 0 .. 1 by a multiplication with float32(1/255), the same on every device.

    Args:
        images: (B, 3, S, S) uint8.
        memory_format: layout of the result.

    Returns:
        (B, 3, S, S) float32.
    """
    return images.to(torch.float32, memory_format=memory_format).mul_(UNIT)
