"""Finished detections of one image, upright or rotated, on the host and in the frame of the original picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.ops.rle import Rle

Rows = NDArray[np.integer] | NDArray[np.bool_]
"""Which detections: their positions, or one truth value each."""


@dataclass(frozen=True, slots=True)
class Detections:
    """Detections of one image, best first.

    Attributes:
        boxes: (N, 4) float32 xyxy, pixels of the original picture (after the EXIF rule).
        scores: (N,) float32 in 0 .. 1.
        classes: (N,) int64 labels.
        masks: N masks of the size of the picture; None where the task has none, as the next two.
        keypoints: (N, K, 3) float32 x, y in pixels of the picture, which may lie outside of it, and score in 0 .. 1.
        rotated: (N, 5) float32 cx, cy, w, h in pixels of the picture and theta in radians, see ``ops.rotated``; then
            ``boxes`` are the upright boxes around them.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    classes: NDArray[np.int64]
    masks: tuple[Rle, ...] | None = None
    keypoints: NDArray[np.float32] | None = None
    rotated: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, rows: Rows) -> Detections:
        """Pick detections."""
        positions = np.arange(len(self))[rows]
        return Detections(
            boxes=self.boxes[positions],
            scores=self.scores[positions],
            classes=self.classes[positions],
            masks=None if self.masks is None else tuple(self.masks[i] for i in positions.tolist()),
            keypoints=None if self.keypoints is None else self.keypoints[positions],
            rotated=None if self.rotated is None else self.rotated[positions],
        )

    def above(self, confidence: float) -> Detections:
        """Keep detections with at least this score."""
        return self.take(self.scores >= confidence)


def join_detections(parts: Sequence[Detections]) -> Detections:
    """Put detections of one task behind each other, in the order given.

    Args:
        parts: at least one; all have masks, key points or rotated boxes, or none has.
    """
    masks, keypoints, rotated = (
        [value for value in column if value is not None]
        for column in zip(*((one.masks, one.keypoints, one.rotated) for one in parts), strict=True)
    )
    return Detections(
        boxes=np.concatenate([one.boxes for one in parts]),
        scores=np.concatenate([one.scores for one in parts]),
        classes=np.concatenate([one.classes for one in parts]),
        masks=tuple(chain.from_iterable(masks)) if masks else None,
        keypoints=np.concatenate(keypoints) if keypoints else None,
        rotated=np.concatenate(rotated) if rotated else None,
    )


@dataclass(frozen=True, slots=True)
class RotatedDetections:
    """Rotated detections of one image, best first.

    Attributes:
        boxes: (N, 5) float32 cx, cy, w, h in pixels of the original picture (after the EXIF rule), theta in radians.
        scores: (N,) float32 in 0 .. 1.
        classes: (N,) int64 labels.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    classes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.scores)

    def above(self, confidence: float) -> RotatedDetections:
        """Keep detections with at least this score."""
        keep = self.scores >= confidence
        return RotatedDetections(self.boxes[keep], self.scores[keep], self.classes[keep])
