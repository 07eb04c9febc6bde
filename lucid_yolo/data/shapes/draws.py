"""Random numbers that are the same on every platform and for every NumPy version.

NumPy may change how its ``Generator`` turns bits into numbers; the bits of a ``BitGenerator`` and of ``SeedSequence``
are guaranteed (NEP 19), so only those are used.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Draws:
    """A stream of draws named by integers: equal keys give equal streams, in any order and in any thread."""

    def __init__(self, *key: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(key))

    def uniforms(self, count: int, low: float = 0.0, high: float = 1.0) -> NDArray[np.float64]:
        """``count`` numbers in [low, high)."""
        unit = (self._bits.random_raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return np.asarray(low + (high - low) * unit, np.float64)

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """One number in [low, high)."""
        return float(self.uniforms(1, low, high)[0])

    def integer(self, low: int, high: int) -> int:
        """One of low, ..., high - 1."""
        return low + int(self.uniform() * (high - low))
