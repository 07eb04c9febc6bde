"""What a run prints, on the terminal and in its log file."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import TracebackType

from rich.console import Console, RenderableType

from lucid_yolo.config.terminal import WIDTH, discard_output, open_console


class Terminal(Console):
    """A terminal that may go away: the run goes on and keeps its log."""

    def on_broken_pipe(self) -> None:
        """Fall silent (``lucid-yolo train | head`` closes the pipe after ten lines)."""
        self.quiet = True
        discard_output()


class RunConsole:
    """Prints to the terminal and, once a run directory is claimed, to its log as plain text."""

    def __init__(self, log: Path | None = None) -> None:
        self.terminal = open_console(Terminal)
        self._file = log.open("a", encoding="utf-8") if log is not None else None
        self._log = None
        if self._file is not None:  # in a notebook a console would show everything instead of writing it
            self._log = Console(file=self._file, width=WIDTH, no_color=True, force_jupyter=False)

    def print(self, what: RenderableType) -> None:
        """Print in both places; a sentence is never broken, so that a command in it can be copied."""
        self.terminal.print(what, highlight=False, soft_wrap=isinstance(what, str))
        self.log(what)

    def log(self, what: RenderableType) -> None:
        """Print to the log only."""
        if self._log is not None and self._file is not None:
            self._log.print(what, highlight=False, soft_wrap=isinstance(what, str))
            self._file.flush()

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            self._log = None
            with suppress(OSError):  # a full disk was reported where it was met
                self._file.close()

    def __enter__(self) -> RunConsole:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
