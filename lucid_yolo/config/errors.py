"""The errors a user reads. Every message says what was wrong, where, what is allowed and what to do."""

from __future__ import annotations

from collections.abc import Sequence


class LucidError(Exception):
    """Base of every error that is addressed to the user: the command line prints it without a traceback."""


class ConfigError(LucidError):
    """One or several problems of a configuration, reported together.

    Args:
        problems: one full sentence a problem.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        if len(self.problems) == 1:
            super().__init__(self.problems[0])
            return
        lines = [f"{len(self.problems)} problems in the configuration:"]
        super().__init__("\n".join(lines + [f"  {i}. {p}" for i, p in enumerate(self.problems, 1)]))


class DataError(LucidError):
    """A data set, a label or an image that cannot be used: names the file, the line or key, and the value."""


class RunError(LucidError):
    """A run that cannot start, continue or finish: run directory taken, nothing to resume, diverged, out of memory."""
