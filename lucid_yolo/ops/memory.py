"""How tensors lie in one buffer."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

ALIGNMENT = 64
"""Elements. Kernels and the order of sums are chosen by the alignment of operands; the allocator aligns no less."""


def aligned_starts(tensors: Iterable[Tensor]) -> tuple[list[int], int]:
    """Give every tensor a place in one buffer, aligned as if it lay alone.

    Args:
        tensors: in the order of the buffer.

    Returns:
        the first element of each, and the elements of the buffer.
    """
    starts, stop = [], 0
    for tensor in tensors:
        starts.append(stop)
        stop += -(-tensor.numel() // ALIGNMENT) * ALIGNMENT
    return starts, stop
