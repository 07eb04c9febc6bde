"""What every kind of label can do, so that the pipeline carries it without knowing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray


class LabelKind(StrEnum):
    """What is read of an object beside its box and class."""

    BOXES = "boxes"  # nothing
    POLYGONS = "polygons"
    KEYPOINTS = "keypoints"
    CORNERS = "corners"  # of a rotated box


@dataclass(frozen=True, slots=True)
class KeypointSpec:
    """The key points of a data set; every object has them all, in this order.

    Attributes:
        names: one name a point.
        skeleton: pairs of positions that a line joins.
        flip: position that each point takes in a mirrored picture, an involution; None: unknown, so that pictures must
            not be mirrored.
        sigmas: spread of each point in Object Keypoint Similarity; None: unknown.
    """

    names: tuple[str, ...]
    skeleton: tuple[tuple[int, int], ...]
    flip: tuple[int, ...] | None
    sigmas: tuple[float, ...] | None

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True)
class LabelSpec:
    """What the labels of a data set ask of a network.

    Attributes:
        num_classes: C.
        keypoints: what the key points are; None where there are none.
    """

    num_classes: int
    keypoints: KeypointSpec | None = None


def spec_without_data(labels: LabelKind, num_classes: int) -> LabelSpec:
    """What stands in for the labels of data that is not read: as many key points as COCO's persons have."""
    if labels is not LabelKind.KEYPOINTS:
        return LabelSpec(num_classes)
    return LabelSpec(num_classes, KeypointSpec(tuple(map(str, range(17))), (), None, None))


class Labels(Protocol):
    """Labels of N objects, in their order. Immutable: every method that changes something returns a copy.

    Points are (P, 2) float64 x, y in pixels, of the picture or of the canvas.

    Attributes:
        field: attribute of ``Targets`` that the labels fill.
    """

    field: ClassVar[str]

    def __len__(self) -> int: ...

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Pick objects by position."""
        ...

    def joined(self, others: Sequence[Self]) -> Self:
        """Append the objects of others."""
        ...

    def points(self) -> NDArray[np.float64]:
        """All points, to be moved together."""
        ...

    def moved(self, points: NDArray[np.float64], *, mirrored: bool) -> Self:
        """Put other points in the place of ``points()``.

        Args:
            points: as many, in the same order.
            mirrored: whether left and right changed places.
        """
        ...

    def settle(
        self, boxes: NDArray[np.float64], image_size: int
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], Self]:
        """Say which objects on a canvas are worth learning, and what their boxes and labels are there.

        Args:
            boxes: (N, 4) xyxy canvas pixels around the corners of the objects' boxes, not clipped.
            image_size: side of the canvas.

        Returns:
            (N, 4) boxes, (N,) whether an object stays, and the labels of all N as they are on the canvas.
        """
        ...

    def target_rows(self, image_size: int) -> NDArray[np.generic]:
        """One row an object, as the loss reads it; see the field of ``Targets``."""
        ...


def empty_of(labels: Labels) -> Labels:
    """Labels of no object, of the same kind."""
    return labels.take(np.zeros(0, np.int64))
