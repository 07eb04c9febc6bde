"""The cache of training pictures in a run: made before the fit, with a bar, and reported in the plan at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lucid_yolo.config.schema import CacheName
from lucid_yolo.data.cache import CacheReport, open_cache
from lucid_yolo.data.source import Pictures
from lucid_yolo.engine.console import RunConsole
from lucid_yolo.engine.prepare import Prepared
from lucid_yolo.perf.plan import Scalar

MIB = 1024 * 1024


@dataclass(frozen=True)
class TrainingPictures:
    """Where a run's training pictures come from.

    Attributes:
        pictures: the cache; None: the files.
        outcome: what the plan says about it at the end; empty without a cache.
    """

    pictures: Pictures | None
    outcome: Mapping[str, Scalar]


def open_training_pictures(prepared: Prepared, console: RunConsole) -> TrainingPictures:
    """Open the cache that the plan has made active.

    Args:
        prepared: the run.
        console: where the bar is drawn, if it is a terminal.

    Raises:
        DataError: an image cannot be used and the configuration says to stop.
        RunError: the file of the cache cannot be written.
    """
    row, config = prepared.plan["cache"], prepared.config
    if row.active == CacheName.NONE:
        return TrainingPictures(None, {})
    index = prepared.splits.train
    bar = Progress(
        TextColumn("[bold]caching pictures"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console.terminal,
        transient=True,
        disable=not (console.terminal.is_terminal and config.logger.progress),
    )
    with bar:
        task = bar.add_task("", total=len(index))
        pictures, report = open_cache(
            index,
            config.data,
            config.cache,
            threads=prepared.plan.machine.cores,
            advance=lambda done: bar.advance(task, done),
        )
    console.print(_sentence(str(row.active), report))
    return TrainingPictures(pictures, _outcome(report))


def _sentence(name: str, report: CacheReport) -> str:
    done = "used again" if report.reused else "made"
    return (
        f"cache={name}: {report.images} pictures, {report.nbytes / MIB:.1f} MiB, {done} in {report.seconds:.1f} s"
        + (f", {report.unusable} of them cannot be used" if report.unusable else "")
    )


def _outcome(report: CacheReport) -> dict[str, Scalar]:
    return {
        "images": report.images,
        "mib": round(report.nbytes / MIB, 3),
        "setup_seconds": round(report.seconds, 3),
        "reused": report.reused,
        "unusable": report.unusable,
    }
