"""Warnings about flags."""

from __future__ import annotations

import warnings


def warn_user(message: str) -> None:
    """Give a UserWarning that the next run in this process (a sweep) gives again.

    The registry of a module would swallow the same words the second time.
    """
    warnings.warn_explicit(message, UserWarning, filename="<run plan>", lineno=1, module=__name__, registry={})
