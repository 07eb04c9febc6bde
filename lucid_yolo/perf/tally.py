"""Who did a kind of work, call by call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lucid_yolo.perf.plan import Scalar


@dataclass(slots=True)
class Tally:
    """Calls of our kernels and of torch's; replays of a recording call nothing.

    Attributes:
        calls: of ours.
        stock_calls: of torch's.
        stock_reason: why torch was called last; empty where it never was.
    """

    calls: int = 0
    stock_calls: int = 0
    stock_reason: str = ""

    def count(self, stock_reason: str) -> None:
        """Count a call.

        Args:
            stock_reason: why it was torch's; empty where it was ours.
        """
        if not stock_reason:
            self.calls += 1
            return
        self.stock_calls += 1
        self.stock_reason = stock_reason

    def outcome(self) -> Mapping[str, Scalar]:
        """What happened, for the run plan."""
        reason = {"stock_reason": self.stock_reason} if self.stock_reason else {}
        return {"calls": self.calls, "stock_calls": self.stock_calls, **reason}
