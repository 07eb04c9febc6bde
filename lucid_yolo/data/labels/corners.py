"""Rotated boxes, which travel as their corners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.data.geometry import MIN_SIDE, MIN_VISIBLE
from lucid_yolo.ops.rotated_iou import area_inside
from lucid_yolo.ops.rotated_np import corners, envelopes, from_corners


@dataclass(frozen=True, slots=True)
class CornerLabels:
    """Corners of rotated boxes; see ``Labels`` for what each method is.

    They may lie outside of the picture or the canvas and are never clipped, which would leave no rectangle. A warp with
    shear makes parallelograms of them: the box is then the rectangle of least area around them.

    Attributes:
        corners: (N, 4, 2) float64 x, y in pixels, in any order.
    """

    field: ClassVar[str] = "rotated"

    corners: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.corners)

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Pick objects by position."""
        return type(self)(self.corners[rows])

    def joined(self, others: Sequence[Self]) -> Self:
        """Append the objects of others."""
        return type(self)(np.concatenate([self.corners, *(other.corners for other in others)]))

    def points(self) -> NDArray[np.float64]:
        """All corners, (4 N, 2)."""
        return self.corners.reshape(-1, 2)

    def moved(self, points: NDArray[np.float64], *, mirrored: bool) -> Self:
        """Put other corners in their place; a mirror changes their order, which says nothing."""
        return type(self)(points.reshape(-1, 4, 2))

    def boxes(self) -> NDArray[np.float64]:
        """(N, 5) canonical rotated boxes, see ``ops.rotated_np``."""
        return from_corners(self.corners)

    def settle(
        self, boxes: NDArray[np.float64], image_size: int
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], Self]:
        """Keep what is seen of a rotated box: `MIN_VISIBLE` of its area, and both of its own sides `MIN_SIDE` long.

        The boxes are the upright ones around the rotated boxes, not clipped.
        """
        rotated = self.boxes()
        half = np.full(1, image_size / 2)
        seen = np.abs(area_inside(corners(rotated) - half, half, half))
        sides = rotated[:, 2:4]
        keep = (sides >= MIN_SIDE).all(axis=1) & (seen >= MIN_VISIBLE * sides.prod(axis=1))
        return envelopes(rotated), keep, self

    def target_rows(self, image_size: int) -> NDArray[np.generic]:
        """(N, 5) float32 canonical rotated boxes."""
        return self.boxes().astype(np.float32)
