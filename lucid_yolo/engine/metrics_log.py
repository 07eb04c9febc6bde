"""Curves of a run: metrics.csv, TensorBoard events and any Lightning logger that the configuration adds."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class MetricsLog:
    """Appends rows of named values.

    A continued run drops the rows that its checkpoint does not know, so that every step stands there once.

    Args:
        path: the CSV file, or None.
        tensorboard: folder of the event files, or None.
        columns: every column that may occur, in order.
        loggers: Lightning loggers.
        resume_step: rows after this step are dropped; None for a new run.
    """

    def __init__(
        self,
        path: Path | None,
        tensorboard: Path | None,
        *,
        columns: Sequence[str],
        loggers: Sequence[Any] = (),
        resume_step: int | None = None,
    ) -> None:
        self._columns = ("epoch", "step", *columns)
        self._path = path
        self._loggers = tuple(loggers)
        self._writer: Any = None
        if path is not None:
            rows = _rows_until(path, resume_step) if resume_step is not None and path.exists() else []
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, self._columns, extrasaction="ignore")
                writer.writeheader()
                writer.writerows(rows)
        if tensorboard is not None:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - slow to import

            purge = None if resume_step is None else resume_step + 1
            self._writer = SummaryWriter(str(tensorboard), purge_step=purge)

    def write(self, values: Mapping[str, float], *, epoch: int, step: int) -> None:
        """Append one row; names that are not columns are an error of ours."""
        unknown = set(values) - set(self._columns)
        assert not unknown, f"no such columns: {unknown}"
        if self._path is not None:
            with self._path.open("a", newline="") as file:
                csv.DictWriter(file, self._columns).writerow({"epoch": epoch, "step": step, **values})
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)
        for logger in self._loggers:
            logger.log_metrics(dict(values), step=step)

    def close(self) -> None:
        """Write out what is buffered."""
        if self._writer is not None:
            self._writer.close()
        for logger in self._loggers:
            logger.finalize("success")


def _rows_until(path: Path, step: int) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return [row for row in csv.DictReader(file) if (row.get("step") or "").isdigit() and int(row["step"]) <= step]
