"""Outlines: polygons of both formats, and the run lengths of COCO JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.data.labels.base import KeypointSpec, Labels
from lucid_yolo.data.labels.polygons import Outline, PolygonLabels
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
from lucid_yolo.data.readers.parsers.run_lengths import read_run_lengths
from lucid_yolo.ops.contours import outline

_FEWEST = 6  # numbers of a polygon: three corners
_NEEDED = "task=segment needs a polygon or an RLE"


class PolygonParser:
    """See `LabelParser`."""

    def coco(self, annotation: Mapping[str, Any]) -> Parsed:
        """Read ``segmentation``; the box stays the one that the file states.

        An outline whose corners lie on a line has a box of no size, which readers drop.
        """
        if "segmentation" not in annotation:
            raise UnusableLabelError(f"has no 'segmentation'; {_NEEDED}")
        segmentation = annotation["segmentation"]
        if not isinstance(segmentation, list | dict):
            raise UnusableLabelError(f"segmentation is {segmentation!r}; {_NEEDED}")
        if not segmentation:
            raise UnusableLabelError(f"segmentation is empty; {_NEEDED}")
        if isinstance(segmentation, list):
            found = _outline([_polygon(one, f"segmentation[{i}]") for i, one in enumerate(segmentation)])
            return Parsed(_no_size(segmentation, annotation.get("bbox")), found)
        run, mask = read_run_lengths(segmentation)
        rings = outline(mask)
        if not rings:
            raise UnusableLabelError(f"the RLE of its segmentation covers no pixel; {_NEEDED} of something")
        found = _outline([ring.points for ring in rings], [ring.hole for ring in rings])
        return Parsed(None, replace(found, run=run), size=(run.width, run.height))

    def coco_keypoints(self, categories: Sequence[Mapping[str, Any]]) -> KeypointSpec | None:
        """None are read."""
        return None

    def yolo(self, values: Sequence[float], keypoints: tuple[int, int] | None) -> Parsed:
        """Read the corners of a polygon; a line that holds a box has no outline.

        Corners on a line have a box of no size, which readers drop.
        """
        allowed = "task=segment needs the corners of a polygon: 7, 9, ... fields (class x1 y1 x2 y2 x3 y3 ...)"
        if len(values) == 4:
            raise UnusableLabelError(f"the line holds a box; {allowed}")
        if keypoints is not None and len(values) == 4 + keypoints[0] * keypoints[1]:
            raise UnusableLabelError(f"the line holds a box and key points (kpt_shape of data.yaml); {allowed}")
        if len(values) < _FEWEST or len(values) % 2:
            raise UnusableLabelError(allowed)
        x, y = values[::2], values[1::2]
        box: Box = (min(x), min(y), max(x), max(y))
        if on_a_line(x, y, rounding=FRACTION_ROUNDING):
            box = (*box[:2], *box[:2])
        return Parsed(box, _outline([np.array(values, np.float64).reshape(-1, 2)]))

    def yolo_coordinates(self, values: Sequence[float], keypoints: tuple[int, int] | None) -> Sequence[float]:
        """All of them."""
        return values

    def yolo_keypoints(self, keypoints: tuple[int, int] | None, flip: tuple[int, ...] | None) -> KeypointSpec | None:
        """None are read."""
        return None

    def scaled(self, value: Any, width: float, height: float) -> Any:
        """The outline in pixels."""
        assert isinstance(value, Outline)
        return replace(value, points=value.points * (width, height))

    def pack(self, values: Sequence[Any]) -> Labels | None:
        """Outlines of a split."""
        return PolygonLabels.of(values)


def _no_size(rings: Sequence[Sequence[float]], box: Any) -> Box | None:
    """A box of no size where polygons cover nothing, else None.

    Raises:
        UnusableLabelError: the box that the file states lies elsewhere: a mask outside of it would never be learned.
    """
    left, right = (pick(pick(ring[::2]) for ring in rings) for pick in (min, max))
    top, bottom = (pick(pick(ring[1::2]) for ring in rings) for pick in (min, max))
    if all(on_a_line(ring[::2], ring[1::2], rounding=PIXEL_ROUNDING) for ring in rings):
        return (left, top, left, top)
    if isinstance(box, list) and len(box) == 4 and are_places(box) and min(box[2:]) > 0:
        x, y, width, height = box
        if left > x + width or right < x or top > y + height or bottom < y:
            raise UnusableLabelError(
                f"segmentation reaches from {left:g}, {top:g} to {right:g}, {bottom:g}, and bbox is {box}: a mask lies "
                "in its box"
            )
    return None


def _outline(rings: Sequence[NDArray[np.float64]], holes: Sequence[bool] | None = None) -> Outline:
    return Outline(np.concatenate(rings), tuple(map(len, rings)), tuple(holes or [False] * len(rings)))


def _polygon(numbers: Any, where: str) -> NDArray[np.float64]:
    """(P, 2) corners of a polygon of COCO JSON."""
    if not isinstance(numbers, list):
        raise UnusableLabelError(f"{where} is {numbers!r}; a list of polygons, each [x1, y1, x2, y2, ...], is needed")
    if not are_places(numbers):
        raise UnusableLabelError(
            f"{where} holds something else than finite numbers in pixels, none beyond {FARTHEST}; {_NEEDED}"
        )
    if len(numbers) < _FEWEST or len(numbers) % 2:
        raise UnusableLabelError(f"{where} has {len(numbers)} numbers; x and y of at least 3 corners are needed")
    return np.array(numbers, np.float64).reshape(-1, 2)


PARSER: LabelParser = PolygonParser()
