"""What is in a split: classes, sizes, places and numbers of objects."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colorbar import Colorbar
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.viz.figure import new_figure, note, plain_log_ticks, style_axes
from lucid_yolo.viz.style import ACCENT, INK, class_hex, count, shorten

_MAX_BARS = 120
_FEW = 8  # below, bars keep the width that they would have with this many
_MANY = 15  # from here on class names stand upright
_COCO_SIDES = ((32, "small | medium"), (96, "medium | large"))


def label_figure(index: SplitIndex) -> Figure:
    """Class histogram, box sizes, box centres and objects an image of a split; crowds are left out.

    Args:
        index: the split.
    """
    regular = ~index.crowd
    images = np.repeat(np.arange(len(index)), np.diff(index.offsets))[regular]
    boxes, classes = index.boxes[regular].astype(np.float64), index.classes[regular]
    counts = np.bincount(images, minlength=len(index))
    parts = [f"{count(len(index), 'image')} ({int((counts == 0).sum())} without objects)", count(len(boxes), "object")]
    if index.crowd.any():
        parts.append(f"{count(index.num_crowds, 'crowd region')} left out")
    figure = new_figure(14, 8.5, title=f"Labels, {index.name} split: {', '.join(parts)}")
    rows = figure.add_gridspec(2, 1, height_ratios=(1.0, 1.15))
    below = rows[1].subgridspec(1, 3)
    _class_bars(figure.add_subplot(rows[0]), np.bincount(classes, minlength=index.num_classes), index.class_names)
    _sizes(figure, figure.add_subplot(below[0]), boxes[:, 2:] - boxes[:, :2])
    _centres(figure, figure.add_subplot(below[1]), (boxes[:, :2] + boxes[:, 2:]) / 2 / index.sizes[images])
    _per_image(figure.add_subplot(below[2]), counts)
    return figure


def _class_bars(axes: Axes, counts: NDArray[np.int64], class_names: tuple[str, ...]) -> None:
    """One bar a class, the most frequent first; a logarithmic axis where the numbers differ widely."""
    order = np.argsort(-counts, kind="stable")
    shown = order[:_MAX_BARS]
    rest = order[_MAX_BARS:]
    title = "Objects a class" + (f" (the {len(rest)} rarest of {len(order)} not shown)" if len(rest) else "")
    style_axes(axes, title=title, ylabel="objects", grid="y")
    positions = np.arange(len(shown))
    bars = axes.bar(positions, counts[shown], width=0.75, color=[class_hex(int(label)) for label in shown])
    many = len(shown) > _MANY
    size = 9.0 if not many else max(4.5, min(8.0, 640 / len(shown)))
    names = [shorten(class_names[label], 18 if many else 22) for label in shown]
    axes.set_xticks(positions, names, rotation=90 if many else 0, fontsize=size)
    if not many and any(len(name) > 90 / len(shown) for name in names):
        axes.set_xticks(positions, names, rotation=20, ha="right", fontsize=size)
    margin = max(0.0, (_FEW - len(shown)) / 2)
    axes.set_xlim(-0.7 - margin, len(shown) - 0.3 + margin)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))
    present = counts[counts > 0]
    if len(present) and present.max() > 100 * present.min():
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.7)
        plain_log_ticks(axes.yaxis, 1, 2 * float(present.max()))
    axes.margins(y=0.12)
    if not len(present):
        axes.set_ylim(0, 1)
        axes.set_yticks([0])
    if len(shown) <= 40:
        axes.bar_label(bars, fontsize=8, color=INK, padding=2)


def _sizes(figure: Figure, axes: Axes, sides: NDArray[np.float64]) -> None:
    """Width against height in pixels, both logarithmic."""
    style_axes(axes, title="Box sizes", xlabel="width (pixels)", ylabel="height (pixels)")
    sides = sides[(sides > 0).all(axis=1)]
    if not len(sides):
        note(axes, "no boxes")
        return
    low, high = max(0.5, sides.min() / 1.3), max(sides.max() * 1.3, 128.0)
    bins = np.geomspace(low, high, 42)
    counts, _, _, mesh = axes.hist2d(
        sides[:, 0], sides[:, 1], bins=[bins, bins], cmap="Blues", norm=LogNorm(vmin=0.6), cmin=1
    )
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        plain_log_ticks(axis, low, high)
    for side, text in _COCO_SIDES:
        if low * low < side * side < high * high:
            width = np.geomspace(low, high, 50)
            axes.plot(width, side * side / width, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
            x = max(low * 1.02, side * side / high * 1.02)
            if x < 0.5 * high:
                axes.text(x, side * side / x, f" {text}", fontsize=7, color=INK, rotation=-45, rotation_mode="anchor",
                      va="bottom", ha="left")  # fmt: skip
    bar = _color_bar(figure, axes, mesh)
    plain_log_ticks(bar.ax.yaxis, 1, float(np.nanmax(counts)))


def _centres(figure: Figure, axes: Axes, centres: NDArray[np.float64]) -> None:
    """Where the centres of the boxes lie, as shares of the picture."""
    style_axes(axes, title="Box centres", xlabel="x / picture width", ylabel="y / picture height", grid=None)
    if not len(centres):
        note(axes, "no boxes")
        return
    edges = np.linspace(0, 1, 1 + int(np.clip(np.sqrt(len(centres)) / 2, 12, 48)))
    mesh = axes.hist2d(centres[:, 0], centres[:, 1], bins=[edges, edges], cmap="Blues", cmin=1)[3]
    axes.set(xlim=(0, 1), ylim=(1, 0), aspect="equal")
    _color_bar(figure, axes, mesh).ax.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _per_image(axes: Axes, counts: NDArray[np.int64]) -> None:
    """How many objects the images have."""
    mean = float(counts.mean()) if len(counts) else 0.0
    title = f"Objects an image (mean {mean:.1f}, most {counts.max(initial=0)})"
    style_axes(axes, title=title, xlabel="objects", ylabel="images", grid="y")
    width = max(1, -(-int(counts.max(initial=0) + 1) // 40))
    edges = np.arange(0, counts.max(initial=0) + width + 1, width) - 0.5
    axes.hist(counts, bins=edges.tolist(), color=ACCENT, rwidth=0.9)
    axes.set_box_aspect(1)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    axes.axvline(mean, color=INK, linewidth=1, linestyle=(0, (4, 3)))


def _color_bar(figure: Figure, axes: Axes, mesh: QuadMesh) -> Colorbar:
    bar = figure.colorbar(mesh, ax=axes, shrink=0.8, pad=0.02, format=FuncFormatter(lambda value, _: f"{value:g}"))
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7.5, colors=INK, length=2, which="both")
    bar.ax.set_title("boxes", fontsize=7.5, color=INK)
    return bar
