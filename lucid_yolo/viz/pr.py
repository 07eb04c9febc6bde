"""Precision, recall and F1 of each class and on average."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lucid_yolo.viz.figure import LABEL_SIZE, new_figure, note, style_axes
from lucid_yolo.viz.style import INK, MUTED, class_hex, shorten

_ALL_NAMED = 12  # up to here every class has its color and its line in the legend
_ENDS = 4  # beyond: that many of the best and of the worst


def pr_figure(
    recall_points: NDArray[np.float64],
    precision: NDArray[np.float64],
    average_precision: NDArray[np.float64],
    class_names: Sequence[str],
) -> Figure:
    """Precision against recall at IoU 0.5.

    Args:
        recall_points: (R,) recall.
        precision: (R, C) precision; NaN columns are classes without objects.
        average_precision: (C,) AP at IoU 0.5; NaN likewise.
        class_names: one name a class.
    """
    figure = new_figure(8.6, 5.6)
    axes = figure.add_subplot()
    style_axes(axes, title="Precision and recall at IoU 0.5", xlabel="recall", ylabel="precision")
    axes.set(xlim=(0, 1), ylim=(-0.01, 1.02))
    mean = _class_mean(precision)
    if mean is None:
        note(axes, "no objects")
        return figure
    _class_lines(axes, recall_points, precision, average_precision, class_names)
    average = float(np.nanmean(average_precision))
    axes.plot(recall_points, mean, color=INK, linewidth=2.6, label=f"mean of classes  {average:.3f}")
    _legend(axes, "AP50")
    return figure


def confidence_figure(
    confidences: NDArray[np.float64],
    precision: NDArray[np.float64],
    recall: NDArray[np.float64],
    f1: NDArray[np.float64],
    class_names: Sequence[str],
    *,
    best: float,
) -> Figure:
    """F1, precision and recall against the confidence from which on detections are kept.

    Args:
        confidences: (G,) thresholds.
        precision: (G, C); NaN where nothing is kept.
        recall: (G, C); NaN for classes without objects.
        f1: (G, C); NaN likewise.
        class_names: one name a class.
        best: threshold of the highest mean F1.
    """
    figure = new_figure(15, 4.8)
    present = ~np.isnan(f1).all(axis=0)
    strength = np.where(present, np.nan_to_num(f1, nan=-1.0).max(axis=0), np.nan)
    for position, (title, values) in enumerate((("F1", f1), ("Precision", precision), ("Recall", recall))):
        axes = figure.add_subplot(1, 3, position + 1)
        style_axes(axes, title=f"{title} at IoU 0.5", xlabel="confidence", ylabel=title)
        axes.set(xlim=(0, 1), ylim=(-0.01, 1.02))
        mean = _class_mean(np.where(present, values, np.nan))
        if mean is None:
            note(axes, "nothing detected" if present.any() else "no objects")
            continue
        _class_lines(axes, confidences, values, strength, class_names)
        at = float(np.interp(best, confidences, mean))
        axes.plot(confidences, mean, color=INK, linewidth=2.6, label=f"mean of classes  {np.nanmax(f1_mean(f1)):.3f}")
        axes.axvline(best, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        text = f"{at:.3f} at {best:.3f}" if not np.isnan(at) else f"{best:.3f}"
        side = -1 if best > 0.55 else 1
        axes.annotate(text, (best, 0.03), xytext=(5 * side, 0), textcoords="offset points", fontsize=8.5, color=INK,
                      ha="left" if side > 0 else "right", fontweight="bold")  # fmt: skip
        if position == 2:
            _legend(axes, "best F1")
    return figure


def f1_mean(f1: NDArray[np.float64]) -> NDArray[np.float64]:
    """(G,) mean over the classes that have objects; zeros without any."""
    mean = _class_mean(f1)
    return np.zeros(len(f1)) if mean is None else mean


def _class_mean(values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Mean of each row over what is defined, NaN where nothing is; None when nothing is at all."""
    defined = ~np.isnan(values)
    if not defined.any():
        return None
    count = defined.sum(axis=1)
    total = np.where(defined, values, 0.0).sum(axis=1)
    mean = np.full(len(values), np.nan)
    np.divide(total, count, out=mean, where=count > 0)
    return mean


def _class_lines(
    axes: Axes,
    x: NDArray[np.float64],
    values: NDArray[np.float64],
    strength: NDArray[np.float64],
    class_names: Sequence[str],
) -> None:
    """A line a class; of many classes only the best and the worst have a color and a name, the others are gray."""
    order = [int(i) for i in np.argsort(-strength, kind="stable") if not np.isnan(strength[i])]
    named = order if len(order) <= _ALL_NAMED else order[:_ENDS] + order[-_ENDS:]
    for label in order:
        if label not in named:
            axes.plot(x, values[:, label], color=MUTED, linewidth=0.6, alpha=0.45)
    for label in named:
        text = f"{shorten(class_names[label], 22)}  {strength[label]:.3f}"
        axes.plot(x, values[:, label], color=class_hex(label), linewidth=1.3, label=text)
    if len(named) < len(order):
        axes.plot([], [], color=MUTED, linewidth=0.6, label=f"{len(order) - len(named)} classes between")


def _legend(axes: Axes, title: str) -> None:
    legend = axes.legend(title=title, fontsize=8, title_fontsize=LABEL_SIZE, frameon=False, loc="upper left",
                bbox_to_anchor=(1.01, 1.02), labelcolor=INK, alignment="left")  # fmt: skip
    legend.get_title().set_color(INK)
