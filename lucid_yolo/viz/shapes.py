"""What is drawn of objects beside their boxes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.data.batch import Targets
from lucid_yolo.data.labels.base import Labels
from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.rle import Rle


@dataclass(frozen=True, slots=True)
class Shapes:
    """Shapes of N objects; None where they have none of a kind.

    Attributes:
        masks: N masks, each of the whole picture and of any size: it is stretched over the picture.
        keypoints: (N, K, 3) x, y in pixels of the picture, and score in 0 .. 1 (1 for a labelled point, else 0).
        rotated: (N, 5) cx, cy, w, h in pixels of the picture and theta in radians, drawn in place of the boxes.
    """

    masks: tuple[Rle, ...] | None = None
    keypoints: NDArray[np.floating] | None = None
    rotated: NDArray[np.floating] | None = None

    def scaled(self, factor: float) -> Shapes:
        """The same on a picture resized by a factor."""
        return Shapes(
            masks=self.masks,
            keypoints=None if self.keypoints is None else self.keypoints * np.array([factor, factor, 1.0]),
            rotated=None if self.rotated is None else self.rotated * np.array([factor] * 4 + [1.0]),
        )


NO_SHAPES = Shapes()


def detection_shapes(detections: Detections) -> Shapes:
    """Shapes of detections."""
    return Shapes(detections.masks, detections.keypoints, detections.rotated)


def target_shapes(targets: Targets, rows: NDArray[np.bool_]) -> Shapes:
    """Shapes of objects as the loss is shown them.

    Args:
        targets: of a batch, on the host.
        rows: (T,) bool, the objects.
    """
    masks, keypoints, rotated = (
        None if column is None else column.numpy()[rows]
        for column in (targets.masks, targets.keypoints, targets.rotated)
    )
    return _row_shapes(masks=masks, keypoints=keypoints, rotated=rotated)


def label_shapes(labels: Labels | None, *, width: int, height: int, scale: float) -> Shapes:
    """Shapes of labelled objects, by way of what the loss would be shown of them.

    Args:
        labels: in pixels of their picture.
        width: of the resized picture that they are drawn on.
        height: of the same.
        scale: its pixels a pixel of the picture.
    """
    if labels is None:
        return NO_SHAPES
    side = -(-max(width, height) // 8) * 8  # eight cells of a mask are a byte
    canvas = 4 * side  # so that the cells are the pixels of the resized picture
    moved = labels.moved(labels.points() * (4 * scale), mirrored=False)
    shapes = _row_shapes(**{labels.field: moved.target_rows(canvas)}).scaled(1 / 4)
    if shapes.masks is None:
        return shapes
    return Shapes(tuple(Rle.encode(mask.decode()[:height, :width]) for mask in shapes.masks))


def _row_shapes(
    *,
    masks: NDArray[np.generic] | None = None,
    keypoints: NDArray[np.generic] | None = None,
    rotated: NDArray[np.generic] | None = None,
) -> Shapes:
    """Shapes of rows of ``Targets``, under the names of its fields."""
    return Shapes(
        masks=None if masks is None else tuple(Rle.encode(_unpacked(one)) for one in masks.astype(np.uint8)),
        keypoints=None if keypoints is None else keypoints.astype(np.float64),
        rotated=None if rotated is None else rotated.astype(np.float64),
    )


def _unpacked(mask: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(H, W) bool from (H, W / 8) bytes."""
    return np.unpackbits(mask, axis=-1).astype(np.bool_)
