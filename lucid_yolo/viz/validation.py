"""Predictions beside the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.data.labels.base import Labels
from lucid_yolo.ops.detections import Detections
from lucid_yolo.viz.draw import Picture, Skeleton, draw_detections, draw_objects
from lucid_yolo.viz.shapes import label_shapes
from lucid_yolo.viz.style import count
from lucid_yolo.viz.tiles import fit, grid, tile

_TILE_WIDTH = 480
_ASPECTS = (0.5, 1.25)  # height to width of a tile


@dataclass(frozen=True, slots=True)
class Comparison:
    """One picture with its truth and its detections, all in pixels of the picture.

    Attributes:
        name: for the caption.
        picture: (H, W, 3) uint8 RGB.
        boxes: (N, 4) xyxy.
        classes: (N,) labels.
        crowd: (N,) which of them are crowds.
        detections: those to show.
        labels: what the truth has beside boxes.
    """

    name: str
    picture: Picture
    boxes: NDArray[np.floating]
    classes: NDArray[np.integer]
    crowd: NDArray[np.bool_]
    detections: Detections
    labels: Labels | None = None


def comparison_grid(
    comparisons: Sequence[Comparison], class_names: Sequence[str], *, confidence: float, skeleton: Skeleton = ()
) -> Picture:
    """Draw truth (left) and prediction (right) of each picture, two pairs a row.

    Args:
        comparisons: at least one.
        class_names: one name a class.
        confidence: least score, for the caption.
        skeleton: pairs of key points that a line joins.

    Returns:
        (H, W, 3) uint8 RGB.
    """
    aspect = float(np.median([one.picture.shape[0] / one.picture.shape[1] for one in comparisons]))
    height = round(_TILE_WIDTH * min(max(aspect, _ASPECTS[0]), _ASPECTS[1]))
    tiles = []
    for one in comparisons:
        fitted = fit(one.picture, _TILE_WIDTH, height)
        found, scale = one.detections, fitted.scale
        resized_height, resized_width = fitted.picture.shape[:2]
        truth = draw_objects(
            fitted.picture,
            fitted.boxes(one.boxes),
            one.classes,
            class_names,
            crowd=one.crowd,
            shapes=label_shapes(one.labels, width=resized_width, height=resized_height, scale=scale),
            skeleton=skeleton,
        )
        predicted = draw_detections(fitted.picture, found, class_names, skeleton=skeleton, scale=scale)
        tiles.append(tile(truth, _TILE_WIDTH, height, f"truth: {count(len(one.boxes), 'object')}, {one.name}"))
        tiles.append(
            tile(
                predicted, _TILE_WIDTH, height, f"prediction: {len(found)} with confidence of at least {confidence:.2f}"
            )
        )
    return grid(tiles, 4 if len(comparisons) > 1 else 2)


def spread(total: int, limit: int) -> list[int]:
    """Up to ``limit`` positions of ``total``, evenly spread."""
    return sorted({round(i) for i in np.linspace(0, total - 1, min(total, limit)).tolist()})
