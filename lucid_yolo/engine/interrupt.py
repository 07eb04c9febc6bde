"""Ctrl-C during a fit: finish the running step, save, stop. A second one stops at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class FitStopped(Exception):  # noqa: N818 - a way out of the loop, not an error
    """Leaves Lightning's loop after the state was saved."""


class StopSignal:
    """Notes the first Ctrl-C instead of raising; a context manager around a fit.

    Outside the main thread no handler can be set; there it stays silent.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: Any = None
        self._installed = False

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._note)
            self._installed = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, self._previous)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
