"""Boxes alone: what else a file says of an object is passed over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lucid_yolo.data.labels.base import KeypointSpec, Labels
from lucid_yolo.data.readers.parsers.base import LabelParser, Parsed, UnusableLabelError


class BoxParser:
    """See `LabelParser`."""

    def coco(self, annotation: Mapping[str, Any]) -> Parsed:
        """The box stands where every annotation has it."""
        return Parsed(None)

    def coco_keypoints(self, categories: Sequence[Mapping[str, Any]]) -> KeypointSpec | None:
        """None are read."""
        return None

    def yolo(self, values: Sequence[float], keypoints: tuple[int, int] | None) -> Parsed:
        """Read a box, a box with key points behind it, or the box around a polygon."""
        count = len(values)
        with_keypoints = keypoints is not None and count == 4 + keypoints[0] * keypoints[1]
        if count == 4 or with_keypoints:
            x, y, width, height = values[:4]
            return Parsed((x - width / 2, y - height / 2, x + width / 2, y + height / 2))
        if count >= 6 and count % 2 == 0:
            return Parsed((min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2])), simplified=True)
        raise UnusableLabelError(
            "allowed: 5 (class x_center y_center width height), or 7, 9, ... (class and the corners of a polygon)"
        )

    def yolo_coordinates(self, values: Sequence[float], keypoints: tuple[int, int] | None) -> Sequence[float]:
        """All of a polygon, the four of a box."""
        with_keypoints = keypoints is not None and len(values) == 4 + keypoints[0] * keypoints[1]
        return values[:4] if with_keypoints else values

    def yolo_keypoints(self, keypoints: tuple[int, int] | None, flip: tuple[int, ...] | None) -> KeypointSpec | None:
        """None are read."""
        return None

    def scaled(self, value: Any, width: float, height: float) -> Any:
        """There is nothing to scale."""
        return value

    def pack(self, values: Sequence[Any]) -> Labels | None:
        """There are no labels."""
        return None


PARSER: LabelParser = BoxParser()
