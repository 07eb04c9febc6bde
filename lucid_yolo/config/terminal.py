"""Where a command prints: a terminal, a notebook, a file, or a pipe whose reader may leave."""

from __future__ import annotations

import os
import select
import sys

from rich.console import Console

WIDTH = 140


class Output(Console):
    """Standard output for what is done when it has been printed."""

    def on_broken_pipe(self) -> None:
        """Leave it to the command line, as when ``print`` fails; rich would end the process itself, as if it failed."""
        raise  # noqa: PLE0704 - rich calls this where it handles the error


def open_console(kind: type[Console] = Output) -> Console:
    """Make a console for standard output.

    Args:
        kind: its class.
    """
    console = kind()
    if console.is_terminal or console.is_jupyter:
        return console
    return kind(width=WIDTH)  # a file or a pipe has no width of its own, and the 80 of old terminals break names


def reader_left() -> bool:
    """Whether standard output is a pipe that nobody reads any more, as behind ``lucid-yolo --help | head -1``."""
    try:
        pipe = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # a notebook's, or closed
        return False
    if not hasattr(select, "poll"):  # this platform has no such pipes
        return False
    poll = select.poll()
    poll.register(pipe, 0)  # errors are told without being asked for
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def discard_output() -> None:
    """Send standard output nowhere from now on, also what Python would still write at its exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
