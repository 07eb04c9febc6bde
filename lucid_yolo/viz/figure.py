"""Figures without global state: every one is a ``Figure`` object of its own, never pyplot's."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from lucid_yolo.viz.style import GRID, INK, MUTED

DPI = 130
TITLE_SIZE, LABEL_SIZE, TICK_SIZE = 11, 9.5, 8.5


def new_figure(width: float, height: float, *, title: str = "") -> Figure:
    """Start a white figure of this size in inches, with its parts arranged automatically."""
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, wspace=0.04, hspace=0.05)
    figure = Figure(figsize=(width, height), dpi=DPI, layout=layout, facecolor="white")
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=TITLE_SIZE + 2, color=INK, fontweight="bold")
    return figure


def style_axes(
    axes: Axes, *, title: str, xlabel: str = "", ylabel: str = "", grid: Literal["x", "y", "both"] | None = "both"
) -> None:
    """Give axes a title, labels and the project's look.

    Args:
        axes: what to style.
        title: above it.
        xlabel: below it.
        ylabel: beside it.
        grid: "x", "y", "both" or None.
    """
    axes.set_title(title, fontsize=TITLE_SIZE, color=INK, loc="left")
    axes.set_xlabel(xlabel, fontsize=LABEL_SIZE, color=INK)
    axes.set_ylabel(ylabel, fontsize=LABEL_SIZE, color=INK)
    axes.tick_params(labelsize=TICK_SIZE, colors=INK, length=3)
    axes.set_facecolor("white")
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(MUTED)
    axes.set_axisbelow(True)
    if grid is not None:
        axes.grid(visible=True, axis=grid, color=GRID, linewidth=0.8)


def plain_log_ticks(axis: Axis, low: float, high: float) -> None:
    """Mark a logarithmic axis at 1, 2 and 5 times the powers of ten between ``low`` and ``high``, as plain numbers."""
    ticks = [digit * 10.0**power for power in range(-3, 10) for digit in (1, 2, 5)]
    axis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def note(axes: Axes, text: str) -> None:
    """Write a sentence into axes that have nothing to show."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, color=MUTED, fontsize=LABEL_SIZE)


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure; the suffix decides the format. Makes the folder.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=figure.dpi)
    return path
