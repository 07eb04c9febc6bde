"""Statistics of paired measurements: ratios by pair, an interval without assumptions, and the verdict that follows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

LEVEL = 0.95
MIN_PAIRS = 3  # two pairs on one side happen by chance every other time


class Verdict(StrEnum):
    """What a paired comparison says."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Interval:
    """Where the median of a population lies.

    Attributes:
        low: bound.
        high: bound.
        coverage: probability that such an interval holds the median, 0 to 1, whatever the distribution.
    """

    low: float
    high: float
    coverage: float


def median_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Interval for the median from the sign test: two order statistics, no assumption about the distribution.

    Each value lies below the median with probability one half, so the median is outside the ``k``-th smallest and
    ``k``-th largest of ``n`` values with probability ``2 * P(Binomial(n, 1/2) < k)``. Taken is the narrowest pair that
    reaches the level; with few values none does, and it is the smallest and the largest, with the coverage they have:
    75 % for three values, 93.75 % for five.

    Args:
        values: at least one.
        level: wanted coverage.
    """
    ordered = sorted(values)
    count = len(ordered)
    rank = max([k for k in range(1, count // 2 + 1) if _coverage(count, k) >= level], default=1)
    return Interval(ordered[rank - 1], ordered[count - rank], _coverage(count, rank))


def _coverage(count: int, rank: int) -> float:
    outside = 2.0 * sum(math.comb(count, i) for i in range(rank))
    return float(1.0 - outside / 2**count)


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """What an arm takes of the baseline's time.

    Attributes:
        ratios: arm / baseline, one a pair, in the order of the pairs; below 1 the arm is faster.
    """

    ratios: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median ratio."""
        return statistics.median(self.ratios)

    @property
    def low(self) -> float:
        """Smallest ratio."""
        return min(self.ratios)

    @property
    def high(self) -> float:
        """Largest ratio."""
        return max(self.ratios)

    @property
    def interval(self) -> Interval:
        """Where the median ratio lies; the logarithm keeps the order, so it is that of the log ratios too."""
        return median_interval(self.ratios)

    @property
    def saved_percent(self) -> float:
        """Share of the baseline's time that the arm saves; negative where it takes longer."""
        return 100.0 * (1.0 - self.median)

    @property
    def verdict(self) -> Verdict:
        """Faster or slower where the interval leaves 1 out; fewer than three pairs decide nothing."""
        if len(self.ratios) < MIN_PAIRS:
            return Verdict.UNDECIDED
        found = self.interval
        if found.high < 1.0:
            return Verdict.FASTER
        return Verdict.SLOWER if found.low > 1.0 else Verdict.NO_DIFFERENCE


def break_even_epochs(*, setup_seconds: float, saved_seconds_per_epoch: float) -> float:
    """Epochs after which what an arm spends on set-up has come back.

    Returns:
        epochs, perhaps a fraction; infinity: never.
    """
    if saved_seconds_per_epoch <= 0.0:
        return math.inf
    return setup_seconds / saved_seconds_per_epoch
