"""Finished detections of one image, upright or rotated, on the host and in the frame of the original picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Detections:
    """Detections of one image, best first.

    Attributes:
        boxes: (N, 4) float32 xyxy, pixels of the original picture (after the EXIF rule).
        scores: (N,) float32 in 0 .. 1.
        classes: (N,) int64 labels.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    classes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.scores)

    def above(self, confidence: float) -> Detections:
        """Keep detections with at least this score."""
        keep = self.scores >= confidence
        return Detections(self.boxes[keep], self.scores[keep], self.classes[keep])


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
