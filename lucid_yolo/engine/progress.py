"""How a fit shows itself: a live bar on a terminal; elsewhere a line an epoch, and one now and then in a long one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from lucid_yolo.engine.console import RunConsole

QUIET_SECONDS = 60.0
"""After which a long epoch says where it is, where no bar does."""


@dataclass(frozen=True)
class EpochRow:
    """Latest values of an epoch (means since the last reading)."""

    epoch: int
    values: Mapping[str, float]

    def text(self) -> str:
        """Render for a person: losses, learning rate, speed, waiting, memory."""
        losses = "  ".join(
            f"{name.removeprefix('train/')} {value:.3f}"
            for name, value in self.values.items()
            if name.startswith("train/")
        )
        text = (
            f"{losses}  lr {self.values['lr']:.2e}  {_speed(self.values['images_per_second'])} img/s  "
            f"data wait {100 * self.values['data_wait_share']:.0f} %"
        )
        if "gpu_mib" in self.values:
            text += f"  gpu {self.values['gpu_mib']:.0f} MiB"
        return text


def _speed(images_per_second: float) -> str:
    return f"{images_per_second:.0f}" if images_per_second >= 10 else f"{images_per_second:.1f}"


def mean_row(rows: Sequence[tuple[int, EpochRow]]) -> EpochRow:
    """Mean of an epoch's values over its steps; the learning rate is the last one.

    Args:
        rows: steps that each row is a mean of, and the row.
    """
    total = sum(steps for steps, _ in rows)
    last = rows[-1][1]
    values = {name: sum(steps * row.values[name] for steps, row in rows) / total for name in last.values}
    return EpochRow(last.epoch, values | {"lr": last.values["lr"]})


class Progress:
    """Shows a fit.

    Args:
        console: where to print.
        live: draw a moving bar (only where the terminal can).
        silent: show nothing but errors.
    """

    def __init__(self, console: RunConsole, *, live: bool, silent: bool) -> None:
        self._console = console
        self._silent = silent
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._rows: list[tuple[int, EpochRow]] = []
        self._max_epochs = 0
        self._batches = 0
        self._said = time.monotonic()
        self._draw = live and not silent and console.terminal.is_terminal

    def start(self, max_epochs: int, batches: int) -> None:
        """Open the bar."""
        self._max_epochs, self._batches = max_epochs, batches
        if self._draw:
            self._bar = Bar(
                TextColumn("[bold]epoch {task.fields[epoch]}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[row]}"),
                console=self._console.terminal,
                transient=True,
            )
            self._task = self._bar.add_task("", total=batches, epoch=f"1/{max_epochs}", row="")
            self._bar.start()

    def advance(self, batches_done: int) -> None:
        """Move the bar."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=batches_done)

    def update(self, row: EpochRow, *, steps: int, batches_done: int) -> None:
        """Show new values, means over ``steps``; at its end an epoch's line shows the means over all its steps."""
        if self._rows and self._rows[-1][1].epoch != row.epoch:
            self._rows.clear()
        self._rows.append((steps, row))
        label = f"{row.epoch + 1}/{self._max_epochs}"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=batches_done, epoch=label, row=row.text())
        if batches_done >= self._batches:
            self._say(f"epoch {label}  {mean_row(self._rows).text()}")
        elif self._bar is None and time.monotonic() - self._said > QUIET_SECONDS:
            self._say(f"epoch {label}  batch {batches_done}/{self._batches}  {row.text()}")

    def validated(self, epoch: int, values: Mapping[str, float]) -> None:
        """Show the scores of a validation."""
        text = "  ".join(f"{name.removeprefix('val/')} {value:.3f}" for name, value in values.items())
        self._say(f"epoch {epoch + 1}/{self._max_epochs}  validation: {text}")

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        if self._silent:
            self._console.log(text)
        else:
            self._console.print(text)
