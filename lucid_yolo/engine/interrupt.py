"""Ctrl-C, SIGTERM and a closed terminal during a fit: finish the running step, save, stop.

A second Ctrl-C stops at once.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class FitStopped(Exception):  # noqa: N818 - a way out of the loop, not an error
    """Leaves Lightning's loop after the state was saved."""


class StopSignal:
    """Notes the request to stop instead of raising; a context manager around a fit.

    Schedulers announce the end of a job with SIGTERM, a closing terminal sends SIGHUP (left alone under ``nohup``).

    Outside the main thread no handler can be set; there it stays silent.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            for number in _signals():
                self._previous[number] = signal.signal(number, self._note)
        return self

    def take_back(self) -> None:
        """Become the only handler again after the trainer put its own in front."""
        for number in self._previous:
            signal.signal(number, self._note)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True


def _signals() -> list[int]:
    numbers: list[int] = [signal.SIGINT, signal.SIGTERM]
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        numbers.append(hangup)
    return numbers
