"""Where the time of a fit goes, measured at the readings of the step log (they are the synchronisations there are)."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Beginning:
    """When a run began, by ``time.perf_counter()``.

    Attributes:
        process: the start of the process.
        work: the end of its imports.
    """

    process: float
    work: float

    @classmethod
    def now(cls) -> Beginning:
        """The beginning of a run in a process that did something else before."""
        moment = time.perf_counter()
        return cls(process=moment, work=moment)


@dataclass
class FitTiming:
    """Clock of a fit.

    A window is the time between two readings of the step log. The first step is a window of its own (set-up, lazy
    loading) and no part of the medians.

    Attributes:
        started: ``time.perf_counter()`` at the beginning of the work.
        first_step_seconds: from there to the end of the first update; None before it.
    """

    started: float
    first_step_seconds: float | None = None
    _step_ms: list[tuple[float, int]] = field(default_factory=list)
    _images: int = 0
    _seconds: float = 0.0
    _waited: float = 0.0

    def first_step_done(self) -> None:
        """Note the end of the first update."""
        self.first_step_seconds = time.perf_counter() - self.started

    def add_window(self, *, steps: int, images: int, step_seconds: float, seconds: float, waited: float) -> None:
        """Add a window.

        Args:
            steps: steps in it.
            images: images in it.
            step_seconds: from the start of its first step to the reading.
            seconds: the same with the wait before the first step.
            waited: part of ``seconds`` spent waiting for data.
        """
        self._step_ms.append((1000.0 * step_seconds / steps, steps))
        self._images += images
        self._seconds += seconds
        self._waited += waited

    @property
    def step_ms_median(self) -> float | None:
        """Median over the steps of the mean step time of their window."""
        per_step = [ms for ms, steps in self._step_ms for _ in range(steps)]
        return statistics.median(per_step) if per_step else None

    @property
    def images_per_second(self) -> float | None:
        """Images trained a second, validation excluded."""
        return self._images / self._seconds if self._seconds > 0 else None

    @property
    def data_wait_share(self) -> float | None:
        """Share of the training time spent waiting for data."""
        return self._waited / self._seconds if self._seconds > 0 else None
