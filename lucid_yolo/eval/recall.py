"""Recall of the objects that are large enough to be learned: the figure of an overfit check."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.eval.columns import ImageDetections, to_columns
from lucid_yolo.eval.confusion import BOX_OVERLAPS, Overlaps
from lucid_yolo.eval.matching import match_by_score


@dataclass(frozen=True, slots=True)
class Recall:
    """Objects found among those that count."""

    found: int
    objects: int

    @property
    def value(self) -> float:
        """Share found; NaN without objects."""
        return self.found / self.objects if self.objects else float("nan")


def recall_at(
    index: SplitIndex,
    detections: ImageDetections,
    *,
    overlaps: Overlaps = BOX_OVERLAPS,
    min_side: float = 8.0,
    min_area: float = 0.0,
    iou: float = 0.5,
    confidence: float = 0.0,
) -> Recall:
    """Count the objects that a detection of their class finds.

    Detections take objects one to one, best score first. Smaller objects take part in the pairing and are not counted;
    crowds do neither.

    Args:
        index: the split.
        detections: by position of the image, pixels of the original picture.
        overlaps: what is compared.
        min_side: least width and height of an object that counts, pixels of the original picture.
        min_area: least area of such an object as the data set states it, square pixels.
        iou: least IoU of a pair, above 0.
        confidence: least score of a detection that counts.

    Raises:
        ValueError: detections that do not fit the split.
    """
    columns = to_columns(index, detections)
    bounds = np.searchsorted(columns.images, np.arange(len(index) + 1))
    shorter_sides = (index.boxes[:, 2:] - index.boxes[:, :2]).min(axis=1, initial=np.inf)
    counts = ~index.crowd & (shorter_sides >= min_side) & (index.areas >= min_area)
    total = 0
    for image in range(len(index)):
        rows, part = index.rows(image), slice(bounds[image], bounds[image + 1])
        order = part.start + np.argsort(-columns.scores[part], kind="stable")
        order = order[columns.scores[order] >= confidence]
        regular = np.arange(rows.start, rows.stop)[~index.crowd[rows]]
        overlap = overlaps.iou(index, columns, order, regular)
        overlap[columns.classes[order][:, None] != index.classes[regular][None, :]] = 0.0
        partner = match_by_score(overlap, threshold=iou)
        total += int(counts[regular[partner[partner >= 0]]].sum())
    return Recall(found=total, objects=int(counts.sum()))
