"""The objects of one training sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.data.labels.base import Labels


@dataclass(slots=True)
class Objects:
    """Objects on the training canvas.

    Attributes:
        boxes: (N, 4) float32 xyxy pixels.
        classes: (N,) int64.
        labels: what else is known of them, on the canvas; None where the task needs nothing else.
    """

    boxes: NDArray[np.float32]
    classes: NDArray[np.int64]
    labels: Labels | None = None

    def __len__(self) -> int:
        return len(self.classes)

    def joined(self, other: Objects) -> Objects:
        """Append the objects of another canvas of the same split."""
        labels = self.labels
        if labels is not None and other.labels is not None:
            labels = labels.joined([other.labels])
        return Objects(np.concatenate([self.boxes, other.boxes]), np.concatenate([self.classes, other.classes]), labels)
