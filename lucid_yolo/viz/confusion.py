"""Which class is taken for which, as a heat map."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from lucid_yolo.viz.figure import new_figure, note, style_axes
from lucid_yolo.viz.style import INK, shorten

_COUNTS_UP_TO, _SHARES_UP_TO = 12, 32
_MAX_TICKS = 110


def confusion_figure(matrix: NDArray[np.int64], class_names: Sequence[str], *, confidence: float) -> Figure:
    """Draw a confusion matrix, each row as shares of its objects (colors by the square root: rare ones show).

    Classes that neither occur nor are predicted are left out.

    Args:
        matrix: (C + 1, C + 1) counts, rows truth, columns prediction, background last.
        class_names: C names.
        confidence: least score of a detection that counted, for the title.
    """
    used = np.flatnonzero(matrix.any(axis=0) | matrix.any(axis=1))
    kept = np.union1d(used, [len(class_names)])
    counts = matrix[np.ix_(kept, kept)]
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    size, left_out = len(kept), len(class_names) + 1 - len(kept)
    figure = new_figure(*_inches(size))
    axes = figure.add_subplot()
    title = f"Confusion at IoU 0.5, confidence {confidence:.2f}"
    unused = f" ({left_out} unused classes left out)" if left_out else ""
    style_axes(
        axes, title=title + (unused if size > 1 else ""), xlabel="prediction", ylabel="truth (objects)", grid=None
    )
    if size == 1:
        note(axes, "no objects and no detections")
        return figure
    image = axes.imshow(shares, cmap="Blues", norm=PowerNorm(0.5, 0, 1), aspect="equal")
    names = [shorten(class_names[i], 18) for i in kept[:-1]]
    rows = [f"{name} ({total})" for name, total in zip([*names, "background"], totals[:, 0], strict=True)]
    step = -(-size // _MAX_TICKS)
    ticks = [*range(0, size - 1 - step // 2, step), size - 1]
    font = 9.0 if size <= _COUNTS_UP_TO else max(4.5, min(8.0, 420 / size))
    turn, side = (90, "center") if size > 8 else (30, "right")
    axes.set_xticks(ticks, [[*names, "missed"][i] for i in ticks], rotation=turn, ha=side, fontsize=font)
    axes.set_yticks(ticks, [rows[i] for i in ticks], fontsize=font)
    _write_cells(axes, counts, shares)
    bar = figure.colorbar(image, ax=axes, shrink=0.7, pad=0.02, format=FuncFormatter(lambda value, _: f"{value:.0%}"))
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, colors=INK, length=2)
    bar.set_label("share of the row", fontsize=8.5, color=INK)
    return figure


def _inches(size: int) -> tuple[float, float]:
    side = min(max(4.5, 0.75 * size), 8.0) if size <= _COUNTS_UP_TO else min(max(8.0, 0.17 * size), 15.0)
    return side + 2.2, side + 1.0


def _write_cells(axes: Axes, counts: NDArray[np.int64], shares: NDArray[np.float64]) -> None:
    """Shares and counts in the cells of a small matrix, shares in those of a middle-sized one."""
    size = len(counts)
    if size > _SHARES_UP_TO:
        return
    for row, column in zip(*np.nonzero(counts), strict=True):
        share = f"{100 * shares[row, column]:.0f}"
        text = f"{share} %\n{counts[row, column]}" if size <= _COUNTS_UP_TO else share
        color = "white" if shares[row, column] > 0.3 else INK
        font = 9.0 if size <= _COUNTS_UP_TO else 6.0
        axes.text(column, row, text, ha="center", va="center", color=color, fontsize=font)
