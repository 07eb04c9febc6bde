"""What the summary of a run says about its flags, for whoever reads runs that have ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

UNDONE = ("inactive", "retired")  # keys of a flag's outcome: it was switched on and did not stay so


def fallen_flags(plan: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """The flags that were asked for and were not active, or did not stay so.

    Args:
        plan: of a summary, rows by flag.
    """
    return tuple(key for key, row in plan.items() if row["rule_id"] or any(map(row["outcome"].get, UNDONE)))


def fell_back(flags: Iterable[str]) -> str:
    """Name fallen flags in a table; empty where there are none."""
    named = ", ".join(flags)
    return f"fell back: {named}" if named else ""
