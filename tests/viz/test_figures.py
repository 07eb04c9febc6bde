"""Figures: what they show, and that they are independent of pyplot."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from lucid_yolo.viz.confusion import confusion_figure
from lucid_yolo.viz.curves import _smooth, curves_figure, read_metrics
from lucid_yolo.viz.figure import new_figure, save_figure
from lucid_yolo.viz.labels import label_figure
from lucid_yolo.viz.pr import confidence_figure, pr_figure
from lucid_yolo.viz.style import class_hex


def draw(figure: Figure) -> None:
    """Render, so that what only fails in drawing fails here; warnings are errors."""
    figure.draw_without_rendering()


def titles(figure: Figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_labels_are_counted_without_crowds(index):
    figure = label_figure(index)
    draw(figure)
    bars = figure.axes[0].patches
    assert [(bar.get_height(), to_hex(bar.get_facecolor()).upper()) for bar in bars] == [
        (2, class_hex(1)),
        (1, class_hex(0)),
        (0, class_hex(2)),
    ]
    per_image = next(axes for axes in figure.axes if "an image" in axes.get_title(loc="left"))
    assert [bar.get_height() for bar in per_image.patches] == [1, 1, 1]  # images with 0, 1 and 2 objects
    assert per_image.get_title(loc="left") == "Objects an image (mean 1.0, most 2)"
    title = figure.get_suptitle()
    assert "3 images (1 without objects), 3 objects, 1 crowd region left out" in title


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("num_classes", [1, 80, 300])
def test_labels_of_many_classes_and_of_none(index, num_classes):
    names = tuple(f"class number {i}" for i in range(num_classes))
    none = replace(
        index,
        class_names=names,
        category_ids=tuple(range(num_classes)),
        offsets=np.zeros(4, np.int64),
        boxes=np.zeros((0, 4), np.float32),
        classes=np.zeros(0, np.int64),
        crowd=np.zeros(0, bool),
        areas=np.zeros(0, np.float32),
    )
    draw(label_figure(none))
    some = replace(index, class_names=names, category_ids=none.category_ids, classes=index.classes % num_classes)
    draw(label_figure(some))


CSV = """epoch,step,train/total,train/box,lr,images_per_second,data_wait_share,val/box_ap,extra
0,1,4.0,1.0,0.1,100,0.5,,text
0,2,nan,,0.2,,,,
0,2,,,,,,0.25,
1,3,2.0,0.5,0.3,110,0.25,,
1,4,inf,,,,,0.5,
,,1.0,,,,,,
"""


def test_metrics_are_read_from_a_sparse_file(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text(CSV)
    metrics = read_metrics(path)
    assert set(metrics) == {"train/total", "train/box", "lr", "images_per_second", "data_wait_share", "val/box_ap"}
    assert metrics["train/total"].steps.tolist() == [1, 3, 5]  # the last row has no step: its number
    assert metrics["train/total"].values.tolist() == [4, 2, 1]
    assert metrics["val/box_ap"].epochs.tolist() == [0, 1]
    assert metrics["lr"].values.tolist() == [0.1, 0.2, 0.3]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "content", [CSV, "", "epoch,step\n", "step,val/box_ap\n7,0.5\n", "epoch,step,lr\n0,1,0.1\n", "a,b\n1,2,3\n"]
)
def test_curves_of_incomplete_files(tmp_path, content):
    path = tmp_path / "metrics.csv"
    path.write_text(content)
    figure = curves_figure(read_metrics(path))
    draw(figure)
    assert {"Validation", "Learning rate", "Throughput"} <= set(titles(figure))
    assert ("no validation recorded" in texts(figure)) == ("val/" not in content)


def test_curves_show_the_values(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text(CSV)
    figure = curves_figure(read_metrics(path))
    assert titles(figure)[:2] == ["box loss", "total loss"]
    assert figure.axes[1].lines[0].get_ydata().tolist() == [4, 2, 1]
    validation = next(axes for axes in figure.axes if axes.get_title(loc="left") == "Validation")
    assert validation.lines[0].get_xydata().tolist() == [[0, 0.25], [1, 0.5]]
    assert validation.get_legend().get_texts()[0].get_text() == "box_ap: best 0.500, last 0.500"


@pytest.mark.parametrize("length", [1, 7, 100, 333])
def test_smoothing_equals_a_loop(length):
    values = np.random.default_rng(0).normal(size=length)
    half = length // 25 // 2
    expected = []
    for i in range(length):
        reach = min(i, length - 1 - i, half)
        expected.append(values[i - reach : i + reach + 1].mean())
    assert _smooth(values) == pytest.approx(expected)


RECALL = np.linspace(0, 1, 101)


def test_pr_mean_leaves_out_classes_without_objects():
    precision = np.stack([np.ones(101), np.where(RECALL <= 0.5, 0.5, 0.0), np.full(101, np.nan)], axis=1)
    figure = pr_figure(RECALL, precision, np.array([1.0, 0.25, np.nan]), ("a", "b", "c"))
    draw(figure)
    lines = {line.get_label(): line.get_ydata() for line in figure.axes[0].lines}
    assert list(lines) == ["a  1.000", "b  0.250", "mean of classes  0.625"]
    assert lines["mean of classes  0.625"][[0, 100]].tolist() == [0.75, 0.5]


def test_pr_of_many_classes_names_the_ends():
    ap = np.linspace(0, 1, 80)
    precision = np.tile(ap, (101, 1))
    figure = pr_figure(RECALL, precision, ap, [f"c{i}" for i in range(80)])
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels[:4] == ["c79  1.000", "c78  0.987", "c77  0.975", "c76  0.962"]
    assert labels[4:] == ["c3  0.038", "c2  0.025", "c1  0.013", "c0  0.000", "72 classes between", labels[-1]]


@pytest.mark.filterwarnings("error")
def test_curves_without_anything():
    nothing = np.full((101, 2), np.nan)
    figure = pr_figure(RECALL, nothing, np.full(2, np.nan), ("a", "b"))
    draw(figure)
    assert texts(figure) == ["no objects"]
    figure = confidence_figure(RECALL, nothing, nothing, nothing, ("a", "b"), best=0.5)
    draw(figure)
    assert texts(figure) == ["no objects"] * 3
    zero = np.zeros((101, 2))
    figure = confidence_figure(RECALL, nothing, zero, zero, ("a", "b"), best=0.5)
    draw(figure)
    assert "nothing detected" in texts(figure)


def test_confidence_marks_the_best_threshold():
    f1 = np.stack([1 - np.abs(RECALL - 0.3), np.full(101, np.nan)], axis=1)
    figure = confidence_figure(RECALL, f1, f1, f1, ("a", "b"), best=0.3)
    draw(figure)
    assert texts(figure) == ["1.000 at 0.300"] * 3
    assert figure.axes[0].lines[-1].get_xdata()[0] == 0.3


def test_confusion_shows_shares_of_the_rows_that_occur():
    matrix = np.array([[3, 0, 0, 1], [0, 0, 0, 0], [0, 0, 5, 0], [2, 0, 0, 0]])
    figure = confusion_figure(matrix, ("a", "unused", "c"), confidence=0.25)
    draw(figure)
    axes = figure.axes[0]
    assert axes.images[0].get_array().tolist() == [[0.75, 0, 0.25], [0, 1, 0], [1, 0, 0]]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "c", "missed"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a (4)", "c (5)", "background (2)"]
    assert texts(figure) == ["75 %\n3", "25 %\n1", "100 %\n5", "100 %\n2"]
    assert "1 unused classes left out" in titles(figure)[0]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1, 20, 80, 300])
def test_confusion_of_any_size(size):
    for matrix in (np.zeros((size + 1, size + 1), int), np.eye(size + 1, dtype=int)):
        draw(confusion_figure(matrix, [f"class {i}" for i in range(size)], confidence=0.5))


def test_saved_figure_has_the_size_asked_for(tmp_path):
    path = save_figure(new_figure(4, 3, title="t"), tmp_path / "new" / "a.png")
    header = path.read_bytes()[:24]  # PNG: width and height at bytes 16 to 24
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert [int.from_bytes(header[i : i + 4], "big") for i in (16, 20)] == [520, 390]


def test_late_imports():
    code = (
        "import sys, lucid_yolo.viz.draw; assert 'matplotlib' not in sys.modules;"
        "import lucid_yolo.viz.report; assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
