"""What a run prints, on the terminal and in its log file."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from rich.console import Console, RenderableType

WIDTH = 140


class RunConsole:
    """Prints to the terminal and, once a run directory is claimed, to its log as plain text."""

    def __init__(self, log: Path | None = None) -> None:
        self.terminal = Console()
        if not self.terminal.is_terminal and not self.terminal.is_jupyter:
            self.terminal = Console(width=WIDTH)  # a file or a pipe has no width of its own
        self._file = log.open("a", encoding="utf-8") if log is not None else None
        self._log = Console(file=self._file, width=WIDTH, no_color=True) if self._file is not None else None

    def print(self, what: RenderableType) -> None:
        """Print in both places."""
        self.terminal.print(what, highlight=False)
        self.log(what)

    def log(self, what: RenderableType) -> None:
        """Print to the log only."""
        if self._log is not None and self._file is not None:
            self._log.print(what, highlight=False)
            self._file.flush()

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            self._file.close()
            self._log = None

    def __enter__(self) -> RunConsole:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
