"""Key points: places on an object that a task learns beside its box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.config.errors import DataError
from lucid_yolo.data.geometry import visible


@dataclass(frozen=True, slots=True)
class KeypointLabels:
    """Key points of N objects, K each; see ``Labels``.

    Visibility is that of COCO: 0 not labelled, 1 labelled but hidden, 2 labelled and seen. Hidden points are learned,
    those with 0 are not, and a point that leaves the canvas becomes one of them. An object without any point stays
    for its box.

    Attributes:
        values: (N, K, 3) float32 x and y in pixels, and visibility.
        flip: position that each point takes in a mirrored picture; None: unknown.
    """

    field: ClassVar[str] = "keypoints"

    values: NDArray[np.float32]
    flip: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Pick objects by position."""
        return replace(self, values=self.values[rows])

    def joined(self, others: Sequence[Self]) -> Self:
        """Append the objects of others."""
        return replace(self, values=np.concatenate([self.values, *(other.values for other in others)]))

    def points(self) -> NDArray[np.float64]:
        """All points, those without a label too: (N * K, 2)."""
        return self.values[..., :2].reshape(-1, 2).astype(np.float64)

    def moved(self, points: NDArray[np.float64], *, mirrored: bool) -> Self:
        """Put other points in the place of ``points()``; in a mirrored picture left and right change names.

        Raises:
            DataError: the picture is mirrored, and which points change places is unknown.
        """
        values = self.values.copy()
        values[..., :2] = points.reshape(*values.shape[:2], 2)
        if not mirrored:
            return replace(self, values=values)
        if self.flip is None:
            raise DataError(
                "a training picture was mirrored, and which key points change places is unknown; set "
                f"task.keypoints.flip=[...] with a position for each of the {values.shape[1]} points, or leave out "
                "what mirrors: data.augment.flip_lr, data.augment.flip_ud, data.augment.transforms"
            )
        return replace(self, values=values[:, list(self.flip)])

    def settle(
        self, boxes: NDArray[np.float64], image_size: int
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], Self]:
        """Clip the boxes, which stay those of the data set, and forget the points outside of the canvas."""
        settled, keep = visible(boxes, image_size)
        xy = self.values[..., :2]
        inside = ((xy >= 0) & (xy <= image_size)).all(axis=-1, keepdims=True)
        return settled, keep, replace(self, values=np.where(inside, self.values, np.float32(0)))

    def target_rows(self, image_size: int) -> NDArray[np.generic]:
        """(N, K, 3) float32 x, y in pixels and 1 where the point is to be learned, else zeros."""
        rows = self.values.copy()
        rows[..., 2] = 1
        return np.where(self.values[..., 2:] > 0, rows, np.float32(0))
