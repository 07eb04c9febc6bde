"""Where a command prints its tables: a terminal, a notebook, a file or a pipe."""

from __future__ import annotations

from rich.console import Console

WIDTH = 140


def open_console(kind: type[Console] = Console) -> Console:
    """Make a console for standard output.

    Args:
        kind: its class.
    """
    console = kind()
    if console.is_terminal or console.is_jupyter:
        return console
    return kind(width=WIDTH)  # a file or a pipe has no width of its own, and the 80 of old terminals break names
