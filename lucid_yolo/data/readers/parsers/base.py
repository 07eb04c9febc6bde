"""What a reader asks about the labels of an object."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

from lucid_yolo.data.labels.base import KeypointSpec, Labels

Box = tuple[float, float, float, float]

FARTHEST = 2**20
"""Pixels from the corner of a picture; OpenCV decodes none with a longer side."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """One object of a file.

    Attributes:
        box: xyxy around it, in the units of the file; None: the file states its box in the usual place.
        value: its label, which only the parser understands.
        simplified: whether a polygon was read as the box around it.
        size: width and height of the picture that the label is made for; None: it does not say.
    """

    box: Box | None
    value: Any = None
    simplified: bool = False
    size: tuple[int, int] | None = None


class UnusableLabelError(ValueError):
    """A label that cannot be used; its text is what is wrong and what is allowed, without the place."""


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value of a JSON file is a number that has a place among floats."""
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**63)


def is_place(value: Any) -> bool:
    """Whether a value is a coordinate in pixels, of a picture or not too far from one; nan and infinity are none."""
    return is_number(value) and abs(value) <= FARTHEST


def are_places(values: Sequence[Any]) -> bool:
    """Whether all values of a list are such coordinates; a file has millions, so no function is called for each."""
    if not set(map(type, values)) <= {int, float}:
        return False
    return not values or (min(values) >= -FARTHEST and max(values) <= FARTHEST and not math.isnan(sum(values)))


PIXEL_ROUNDING, FRACTION_ROUNDING = 0.01, 1e-6
"""What files round away of a coordinate in pixels, written with two decimals, and of a fraction, written with six."""


def on_a_line(xs: Sequence[float], ys: Sequence[float], *, rounding: float) -> bool:
    """Whether points lie on one line, or in one place, but for rounding: they enclose nothing.

    All points are compared with the line between two that are farthest apart along the longer side.

    Args:
        xs: in pixels, or in fractions of a picture.
        ys: likewise.
        rounding: distance from the line that counts as none, in the same unit.
    """
    left, right, top, bottom = min(xs), max(xs), min(ys), max(ys)
    extent, along, ends = max(
        (right - left, xs, (left, right)), (bottom - top, ys, (top, bottom)), key=lambda one: one[0]
    )
    first, last = (along.index(end) for end in ends)
    x, y, across, down = xs[first], ys[first], xs[last] - xs[first], ys[last] - ys[first]
    limit = rounding * extent
    return not any(abs((px - x) * down - (py - y) * across) > limit for px, py in zip(xs, ys, strict=True))


class LabelParser(Protocol):
    """Reads one kind of label from every format that has it."""

    def coco(self, annotation: Mapping[str, Any]) -> Parsed:
        """Read an annotation of COCO JSON, in pixels.

        Raises:
            UnusableLabelError: its label cannot be used.
        """
        ...

    def coco_keypoints(self, categories: Sequence[Mapping[str, Any]]) -> KeypointSpec | None:
        """What the categories of a COCO JSON say about key points; None where the kind has none.

        Raises:
            UnusableLabelError: they do not agree.
        """
        ...

    def yolo(self, values: Sequence[float], keypoints: tuple[int, int] | None) -> Parsed:
        """Read the numbers that follow the class on a line of a YOLO label file, fractions of the picture.

        Args:
            values: all of them; see ``yolo_coordinates``.
            keypoints: points and numbers a point, as ``kpt_shape`` of data.yaml says.

        Raises:
            UnusableLabelError: they are not as many as the format has.
        """
        ...

    def yolo_coordinates(self, values: Sequence[float], keypoints: tuple[int, int] | None) -> Sequence[float]:
        """Those of the numbers that must be fractions of the picture."""
        ...

    def yolo_keypoints(self, keypoints: tuple[int, int] | None, flip: tuple[int, ...] | None) -> KeypointSpec | None:
        """What a data.yaml says about key points; None where the kind has none.

        Raises:
            UnusableLabelError: it says nothing, or nothing that can be used.
        """
        ...

    def scaled(self, value: Any, width: float, height: float) -> Any:
        """A label in pixels, from fractions of a picture of that size."""
        ...

    def pack(self, values: Sequence[Any]) -> Labels | None:
        """The labels of a split, in the order of its objects; None where the kind has none."""
        ...
