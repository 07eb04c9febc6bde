"""The course of a run, from its metrics.csv."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from lucid_yolo.viz.figure import LABEL_SIZE, new_figure, note, style_axes
from lucid_yolo.viz.style import ACCENT, INK, PALETTE

_FEW_POINTS = 20  # up to here a curve has markers
_SMOOTHING_POINTS = 25  # the smoothed line averages over about 1 / 25 of a curve


@dataclass(frozen=True, slots=True)
class Series:
    """One column of a metrics file, where it has values.

    Attributes:
        steps: (N,) updates done.
        epochs: (N,) epoch; NaN where the file has none.
        values: (N,) finite values.
    """

    steps: NDArray[np.float64]
    epochs: NDArray[np.float64]
    values: NDArray[np.float64]


def read_metrics(path: Path) -> dict[str, Series]:
    """Read a sparse metrics file with the columns ``epoch``, ``step`` and any others.

    Empty cells, text and values that are not finite are left out; a row without a step counts as its own number.
    Columns without a value are absent.

    Raises:
        OSError: the file cannot be read.
    """
    columns: dict[str, list[tuple[float, float, float]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.DictReader(file)):
            step, epoch = _number(row.get("step")), _number(row.get("epoch"))
            for name, cell in row.items():
                value = _number(cell)
                if name is not None and name not in ("step", "epoch") and math.isfinite(value):
                    columns.setdefault(name, []).append((number if math.isnan(step) else step, epoch, value))
    return {name: Series(*np.array(rows, np.float64).T) for name, rows in columns.items()}


def curves_figure(metrics: dict[str, Series]) -> Figure:
    """Draw loss terms, validation scores, learning rate and throughput; what was not recorded is said so.

    Args:
        metrics: columns by name: ``train/...``, ``val/...``, ``lr``, ``images_per_second``, ``data_wait_share``.
    """
    losses = sorted((name for name in metrics if name.startswith("train/")), key=_total_last)
    scores = [name for name in metrics if name.startswith("val/")]
    figure = new_figure(15, 7.5, title="Training")
    rows = figure.add_gridspec(2, 1)
    above = rows[0].subgridspec(1, max(len(losses), 1))
    for i, name in enumerate(losses):
        axes = figure.add_subplot(above[i])
        style_axes(axes, title=f"{name.removeprefix('train/')} loss", xlabel="step")
        _noisy(axes, metrics[name], PALETTE[i % len(PALETTE)])
    if not losses:
        axes = figure.add_subplot(above[0])
        style_axes(axes, title="loss", grid=None)
        note(axes, "no loss recorded")
    below = rows[1].subgridspec(1, 4)
    _scores(figure.add_subplot(below[:2]), metrics, scores)
    _learning_rate(figure.add_subplot(below[2]), metrics.get("lr"))
    _throughput(figure.add_subplot(below[3]), metrics.get("images_per_second"), metrics.get("data_wait_share"))
    return figure


def _number(cell: object) -> float:
    try:
        return float(cell) if isinstance(cell, str) else math.nan
    except ValueError:
        return math.nan


def _total_last(name: str) -> tuple[bool, str]:
    return name.endswith("total"), name


def _noisy(axes: Axes, series: Series, color: str) -> None:
    """Draw the values thinly and their smoothed course on top; one large value at the start does not set the scale."""
    axes.plot(series.steps, series.values, color=color, linewidth=0.9, alpha=0.35)
    marker = "o" if len(series.values) <= _FEW_POINTS else None
    axes.plot(series.steps, _smooth(series.values), color=color, linewidth=1.9, marker=marker, markersize=3)
    low, high = np.percentile(series.values, (0, 98))
    if series.values.max() > low + 3 * (high - low) > low:
        axes.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))


def _smooth(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Centred moving average over an odd window that shrinks at the ends."""
    half = len(values) // _SMOOTHING_POINTS // 2
    sums = np.concatenate([[0.0], np.cumsum(values)])
    positions = np.arange(len(values))
    reach = np.minimum(np.minimum(positions, positions[::-1]), half)
    return np.asarray((sums[positions + reach + 1] - sums[positions - reach]) / (2 * reach + 1), np.float64)


def _scores(axes: Axes, metrics: dict[str, Series], names: Sequence[str]) -> None:
    style_axes(axes, title="Validation", xlabel="epoch")
    if not names:
        note(axes, "no validation recorded")
        return
    top = 0.0
    for i, name in enumerate(names):
        series = metrics[name]
        with_epoch = not np.isnan(series.epochs).any()
        x, short = series.epochs if with_epoch else series.steps, name.removeprefix("val/")
        best = int(series.values.argmax())
        label = f"{short}: best {series.values[best]:.3f}, last {series.values[-1]:.3f}"
        color = PALETTE[i % len(PALETTE)]
        axes.plot(x, series.values, color=color, linewidth=1.8, marker="o", markersize=3, label=label)
        axes.plot(x[best], series.values[best], marker="*", markersize=11, color=color, markeredgecolor="white")
        top = max(top, float(series.values.max()))
        if not with_epoch:
            axes.set_xlabel("step", fontsize=LABEL_SIZE, color=INK)
    axes.set_ylim(0, max(top * 1.12, 0.05))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
    axes.legend(fontsize=8.5, loc="best", labelcolor=INK, framealpha=0.85, edgecolor="none")


def _learning_rate(axes: Axes, series: Series | None) -> None:
    style_axes(axes, title="Learning rate", xlabel="step")
    if series is None:
        note(axes, "no learning rate recorded")
        return
    axes.plot(series.steps, series.values, color=ACCENT, linewidth=1.8)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True, min_n_ticks=1))


def _throughput(axes: Axes, speed: Series | None, waiting: Series | None) -> None:
    style_axes(axes, title="Throughput", xlabel="step", ylabel="images a second")
    if speed is None:
        note(axes, "no throughput recorded")
        return
    axes.plot(speed.steps, speed.values, color=ACCENT, linewidth=1.6)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True, min_n_ticks=1))
    if waiting is None:
        return
    share = axes.twinx()
    share.plot(waiting.steps, waiting.values, color=PALETTE[1], linewidth=1.2)
    style_axes(share, title="", grid=None)
    share.set_ylabel("waiting for data", fontsize=LABEL_SIZE, color=PALETTE[1])
    share.yaxis.set_label_position("right")
    share.set_ylim(0, max(1.0, float(waiting.values.max())))
    share.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
