"""The pictures of a run directory: what is drawn, and under which names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.config.errors import DataError
from lucid_yolo.data.batch import Batch
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.ops.detections import Detections
from lucid_yolo.viz.batches import batch_grid
from lucid_yolo.viz.confusion import confusion_figure
from lucid_yolo.viz.curves import curves_figure, read_metrics
from lucid_yolo.viz.draw import Skeleton, save_picture
from lucid_yolo.viz.figure import save_figure
from lucid_yolo.viz.labels import label_figure
from lucid_yolo.viz.pr import confidence_figure, pr_figure
from lucid_yolo.viz.validation import Comparison, comparison_grid, spread

_UNREADABLE = 160  # gray of a picture that cannot be read


class Curves(Protocol):
    """Precision, recall and F1 by confidence."""

    @property
    def confidences(self) -> NDArray[np.float64]:
        """(G,) thresholds."""

    def precision(self) -> NDArray[np.float64]:
        """(G, C)."""

    def recall(self) -> NDArray[np.float64]:
        """(G, C)."""

    def f1(self) -> NDArray[np.float64]:
        """(G, C)."""


class Metrics(Protocol):
    """What is drawn of an evaluation."""

    @property
    def recall_points(self) -> NDArray[np.float64]:
        """(R,)."""

    @property
    def precision(self) -> NDArray[np.float64]:
        """(R, C) at IoU 0.5."""

    @property
    def per_class_ap50(self) -> NDArray[np.float64]:
        """(C,)."""

    @property
    def curves(self) -> Curves:
        """By confidence."""

    @property
    def best_confidence(self) -> float:
        """Threshold of the highest mean F1."""

    @property
    def confusion(self) -> NDArray[np.int64]:
        """(C + 1, C + 1) at ``best_confidence``."""


def write_label_picture(directory: Path, index: SplitIndex) -> Path:
    """Write ``labels.png``, the statistics of a split."""
    return save_figure(label_figure(index), directory / "labels.png")


def write_training_picture(directory: Path, index: SplitIndex, batch: Batch, *, name: str) -> Path:
    """Write ``<name>.jpg``, a training batch (on the host) with its targets."""
    drawn = batch_grid(batch, index.class_names, paths=index.paths, skeleton=_skeleton(index))
    return save_picture(drawn, directory / f"{name}.jpg")


def write_curves(directory: Path, metrics: Path) -> Path:
    """Write ``curves.png`` from a run's metrics file."""
    return save_figure(curves_figure(read_metrics(metrics)), directory / "curves.png")


def write_validation_pictures(
    directory: Path,
    index: SplitIndex,
    detections: Mapping[int, Detections] | Sequence[Detections],
    metrics: Metrics,
    *,
    class_names: Sequence[str],
    read: Callable[[str], NDArray[np.uint8]],
    max_images: int = 16,
) -> tuple[Path, ...]:
    """Write predictions beside the truth, precision-recall, confidence and confusion.

    Predictions are shown from the confidence of the highest mean F1 on. A picture that cannot be read is a gray one.

    Args:
        directory: where to.
        index: the split.
        detections: by position of the image, pixels of the original picture.
        metrics: their scores.
        class_names: one name a class.
        read: gives the pixels of a file as the split was read, (H, W, 3) uint8 RGB, or raises DataError.
        max_images: pictures to show, spread over the split.
    """
    confidence, curves = metrics.best_confidence, metrics.curves
    chosen = [
        _comparison(index, image, detections[image].above(confidence), read) for image in spread(len(index), max_images)
    ]
    by_confidence = confidence_figure(
        curves.confidences, curves.precision(), curves.recall(), curves.f1(), class_names, best=confidence
    )
    by_recall = pr_figure(metrics.recall_points, metrics.precision, metrics.per_class_ap50, class_names)
    matrix = confusion_figure(metrics.confusion, class_names, confidence=confidence)
    compared = comparison_grid(chosen, class_names, confidence=confidence, skeleton=_skeleton(index))
    return (
        save_picture(compared, directory / "val_predictions.jpg"),
        save_figure(by_recall, directory / "precision_recall.png"),
        save_figure(by_confidence, directory / "confidence.png"),
        save_figure(matrix, directory / "confusion.png"),
    )


def _comparison(
    index: SplitIndex, image: int, detections: Detections, read: Callable[[str], NDArray[np.uint8]]
) -> Comparison:
    rows, path = index.rows(image), index.paths[image]
    name = PurePath(path).name
    try:
        picture = read(path)
    except DataError:
        width, height = index.sizes[image].tolist()
        picture = np.full((max(height, 1), max(width, 1), 3), _UNREADABLE, np.uint8)
        name = f"{name} (cannot be read)"
    labels = None if index.labels is None else index.labels.take(np.arange(rows.start, rows.stop))
    return Comparison(name, picture, index.boxes[rows], index.classes[rows], index.crowd[rows], detections, labels)


def _skeleton(index: SplitIndex) -> Skeleton:
    return () if index.keypoints is None else index.keypoints.skeleton
