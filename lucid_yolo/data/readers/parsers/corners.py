"""Rotated boxes by their corners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lucid_yolo.data.labels.base import KeypointSpec, Labels
from lucid_yolo.data.labels.corners import CornerLabels
from lucid_yolo.data.readers.parsers.base import (
    FARTHEST,
    FRACTION_ROUNDING,
    PIXEL_ROUNDING,
    Box,
    LabelParser,
    Parsed,
    UnusableLabelError,
    are_places,
    on_a_line,
)

_COUNT = 8  # numbers of four corners
_LOW, _HIGH = -1.0, 2.0  # fractions: a corner may lie outside of the picture, but not by more than a whole picture
_COCO_ALLOWED = (
    "allowed: 'corners' with 8 numbers x1, y1, ... x4, y4 in pixels, or 'segmentation' with one ring of 4 corners"
)


class CornerParser:
    """See `LabelParser`. Corners may stand in any order, and outside of the picture."""

    def coco(self, annotation: Mapping[str, Any]) -> Parsed:
        """Read the key ``corners``, or a segmentation of one ring of four corners.

        A crowd region without either has the corners of its upright box.
        """
        values = _coco_corners(annotation)
        if not are_places(values):
            raise UnusableLabelError(
                f"its corners are {list(values)}; 8 finite numbers in pixels, none beyond {FARTHEST}, are needed"
            )
        return _parsed([float(value) for value in values], PIXEL_ROUNDING)

    def coco_keypoints(self, categories: Sequence[Mapping[str, Any]]) -> KeypointSpec | None:
        """None are read."""
        return None

    def yolo(self, values: Sequence[float], keypoints: tuple[int, int] | None) -> Parsed:
        """Read four corners."""
        if len(values) != _COUNT:
            raise UnusableLabelError("allowed: 9 (class x1 y1 x2 y2 x3 y3 x4 y4), as task=obb needs the corners")
        for value in values:
            if not _LOW <= value <= _HIGH:  # also refuses nan
                raise UnusableLabelError(
                    f"coordinate {value:g}; allowed: {_LOW:g} to {_HIGH:g}, fractions of the picture, which corners "
                    "may leave; pixels are to be divided by its width and height"
                )
        return _parsed(values, FRACTION_ROUNDING)

    def yolo_coordinates(self, values: Sequence[float], keypoints: tuple[int, int] | None) -> Sequence[float]:
        """None: corners may leave the picture."""
        return ()

    def yolo_keypoints(self, keypoints: tuple[int, int] | None, flip: tuple[int, ...] | None) -> KeypointSpec | None:
        """None are read."""
        return None

    def scaled(self, value: Any, width: float, height: float) -> Any:
        """Corners in pixels."""
        return tuple(v * (height if i % 2 else width) for i, v in enumerate(value))

    def pack(self, values: Sequence[Any]) -> Labels | None:
        """The corners of a split."""
        return CornerLabels(np.asarray(values, np.float64).reshape(-1, 4, 2))


def _coco_corners(annotation: Mapping[str, Any]) -> Sequence[Any]:
    if (corners := annotation.get("corners")) is not None:
        if not isinstance(corners, list) or len(corners) != _COUNT:
            raise UnusableLabelError(f"corners is {corners!r}; {_COCO_ALLOWED}")
        return corners
    rings = annotation.get("segmentation")
    if isinstance(rings, list) and len(rings) == 1 and isinstance(rings[0], list):
        ring = rings[0]
        if len(ring) == _COUNT + 2 and ring[:2] == ring[-2:]:  # closed
            ring = ring[:-2]
        if len(ring) == _COUNT:
            return ring
    box = annotation.get("bbox")
    if annotation.get("iscrowd") and isinstance(box, list) and len(box) == 4:
        return _upright(*box)
    raise UnusableLabelError(f"{_described(annotation)}; {_COCO_ALLOWED}")


def _described(annotation: Mapping[str, Any]) -> str:
    """What stands in the place of corners."""
    box, rings = annotation.get("bbox"), annotation.get("segmentation")
    if isinstance(box, list) and len(box) == 5:
        return f"bbox has 5 numbers, {box}, and tools disagree about unit and direction of such an angle"
    if rings is None:
        return "has neither 'corners' nor 'segmentation'"
    if not isinstance(rings, list):
        return "segmentation is a mask in run lengths"
    points = [len(ring) // 2 if isinstance(ring, list) else repr(ring) for ring in rings]
    return f"segmentation has rings of {', '.join(map(str, points)) or 'no'} points"


def _upright(x: Any, y: Any, width: Any, height: Any) -> Sequence[Any]:
    try:
        return x, y, x + width, y, x + width, y + height, x, y + height
    except TypeError:
        raise UnusableLabelError(f"bbox is {[x, y, width, height]}; four numbers are needed") from None


def _parsed(values: Sequence[float], rounding: float) -> Parsed:
    """Corners with the upright box around them; corners on a line have a box of no size, which readers drop."""
    xs, ys = values[::2], values[1::2]
    box: Box = (min(xs), min(ys), max(xs), max(ys))
    if on_a_line(xs, ys, rounding=rounding):
        box = (*box[:2], *box[:2])
    return Parsed(box, tuple(values))


PARSER: LabelParser = CornerParser()
