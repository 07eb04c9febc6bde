"""Paired statistics, by hand and against an enumeration of the sign test."""

from __future__ import annotations

import itertools
import math

import pytest

from lucid_yolo.bench.paired import Interval, PairedRatio, Verdict, break_even_epochs, median_interval


@pytest.mark.parametrize(("count", "percent"), [(1, 0), (2, 50), (3, 75), (4, 87.5), (5, 93.75)])
def test_few_values_are_covered_by_their_spread(count: int, percent: float) -> None:
    values = [3.0, 1.0, 2.0, 5.0, 4.0][:count]
    assert median_interval(values) == Interval(min(values), max(values), percent / 100)


@pytest.mark.parametrize("count", [6, 9, 12])
def test_more_values_take_the_narrowest_interval_of_the_level(count: int) -> None:
    # Each value lies below or above the median with equal probability: count the sign patterns that keep it inside.
    found = median_interval(range(count))
    rank = int(found.low) + 1
    assert (found.low, found.high) == (rank - 1, count - rank)

    def share(rank: int) -> float:
        patterns = list(itertools.product((0, 1), repeat=count))
        return sum(rank <= sum(pattern) <= count - rank for pattern in patterns) / len(patterns)

    assert found.coverage == pytest.approx(share(rank))
    assert share(rank) >= 0.95 > share(rank + 1)


def test_a_ratio_by_hand() -> None:
    ratio = PairedRatio((0.9, 0.7, 0.8))
    assert (ratio.median, ratio.low, ratio.high) == (0.8, 0.7, 0.9)
    assert ratio.saved_percent == pytest.approx(20.0)
    assert ratio.verdict is Verdict.FASTER


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ((1.01, 1.2, 1.1), Verdict.SLOWER),
        ((1.01, 1.2), Verdict.UNDECIDED),
        ((0.8, 0.99, 1.001), Verdict.NO_DIFFERENCE),
        ((0.8, 0.9, 1.0), Verdict.NO_DIFFERENCE),
        ((0.5,), Verdict.UNDECIDED),
    ],
)
def test_verdicts(ratios: tuple[float, ...], verdict: Verdict) -> None:
    assert PairedRatio(ratios).verdict is verdict


def test_break_even() -> None:
    assert break_even_epochs(setup_seconds=30.0, saved_seconds_per_epoch=12.0) == 2.5
    assert break_even_epochs(setup_seconds=0.0, saved_seconds_per_epoch=1.0) == 0.0
    assert break_even_epochs(setup_seconds=1.0, saved_seconds_per_epoch=0.0) == math.inf
    assert break_even_epochs(setup_seconds=1.0, saved_seconds_per_epoch=-3.0) == math.inf
