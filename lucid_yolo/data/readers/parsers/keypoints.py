"""Key points: COCO's ``keypoints``, and the numbers that follow a box on a line of YOLO labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.data.labels.base import KeypointSpec, Labels
from lucid_yolo.data.labels.keypoint_spec import (
    COCO_NAMES,
    COCO_SIGMAS,
    COCO_SKELETON,
    flip_problem,
    known_sigmas,
    mirrored_positions,
    skeleton_problem,
)
from lucid_yolo.data.labels.keypoints import KeypointLabels
from lucid_yolo.data.readers.parsers.base import (
    FARTHEST,
    LabelParser,
    Parsed,
    UnusableLabelError,
    is_number,
    is_place,
)

_BOX = 4  # numbers in front of the points on a line of YOLO labels
_VISIBILITIES = (0, 1, 2)


class KeypointParser:
    """See `LabelParser`; a label is (K, 3) float32 x, y, visibility, or None for an object without points."""

    def coco(self, annotation: Mapping[str, Any]) -> Parsed:
        """Read x, y and visibility of each point; the box stands where every annotation has it."""
        numbers = annotation.get("keypoints")
        if numbers is None or numbers == []:
            return Parsed(None)
        if not isinstance(numbers, list) or not all(map(is_number, numbers)):
            raise UnusableLabelError("keypoints are no list of numbers; x, y and visibility of each point are needed")
        if len(numbers) % 3:
            raise UnusableLabelError(f"keypoints has {len(numbers)} numbers; a point has three: x, y, visibility")
        return Parsed(None, _checked([tuple(numbers[i : i + 3]) for i in range(0, len(numbers), 3)]))

    def coco_keypoints(self, categories: Sequence[Mapping[str, Any]]) -> KeypointSpec | None:
        """Names and skeleton, which all categories that have key points share."""
        specs = [(str(record.get("name")), _spec(record)) for record in categories if record.get("keypoints")]
        if not specs:
            raise UnusableLabelError(
                "none has 'keypoints', the list of names that task=keypoints needs; COCO keeps persons with key points "
                "in files of their own, which data.train and data.val pick, such as "
                "data.train=annotations/person_keypoints_train2017.json"
            )
        (first, spec), *others = specs
        for name, other in others:
            if other != spec:
                what = "names" if other.names != spec.names else "skeletons"
                raise UnusableLabelError(
                    f"{first!r} and {name!r} have different {what} of key points ({_shown(spec, what)} and "
                    f"{_shown(other, what)}); one list for all categories is needed"
                )
        return spec

    def yolo(self, values: Sequence[float], keypoints: tuple[int, int] | None) -> Parsed:
        """Read a box and its points; where visibility is not stated, a point at 0, 0 is none."""
        assert keypoints is not None  # yolo_keypoints has refused it
        count, numbers = keypoints
        if len(values) != _BOX + count * numbers:
            raise UnusableLabelError(
                f"allowed: {1 + _BOX + count * numbers} (class x_center y_center width height, and {count} points of "
                f"{numbers} numbers, as kpt_shape says)"
            )
        x, y, width, height = values[:_BOX]
        box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        return Parsed(box, _checked(_yolo_points(values, numbers)))

    def yolo_coordinates(self, values: Sequence[float], keypoints: tuple[int, int] | None) -> Sequence[float]:
        """Those of the box and of every point that is labelled."""
        assert keypoints is not None
        labelled = (point[:2] for point in _yolo_points(values, keypoints[1]) if point[2] > 0)
        return [*values[:_BOX], *(value for point in labelled for value in point)]

    def yolo_keypoints(self, keypoints: tuple[int, int] | None, flip: tuple[int, ...] | None) -> KeypointSpec | None:
        """Number and permutation of the points; those of COCO's persons are known by it, the others have no names."""
        if keypoints is None or keypoints[0] < 1 or keypoints[1] not in (2, 3):
            found = "has none of that form" if keypoints is None else f"says {list(keypoints)}"
            raise UnusableLabelError(
                f"task=keypoints needs kpt_shape: [number of points, 2 or 3 numbers a point], and the file {found}"
            )
        count = keypoints[0]
        if flip is not None and (problem := flip_problem(flip, count)):
            raise UnusableLabelError(
                f"flip_idx is unusable: {problem}; {count} whole numbers are needed, for each point the position that "
                "it takes in a mirrored picture (its own on the middle line)"
            )
        if flip is not None and flip == mirrored_positions(COCO_NAMES):
            return KeypointSpec(COCO_NAMES, COCO_SKELETON, flip, COCO_SIGMAS)
        return KeypointSpec(tuple(str(i) for i in range(count)), (), flip, None)

    def scaled(self, value: NDArray[np.float32], width: float, height: float) -> NDArray[np.float32]:
        """Points in pixels."""
        return value * np.array([width, height, 1], np.float32)

    def pack(self, values: Sequence[NDArray[np.float32] | None]) -> Labels | None:
        """Points of all objects, zeros for those without; (N, 0, 3) where no object has any."""
        count = next((len(value) for value in values if value is not None), 0)
        packed = np.zeros((len(values), count, 3), np.float32)
        for row, value in enumerate(values):
            if value is not None:
                packed[row] = value
        return KeypointLabels(packed)


def _yolo_points(values: Sequence[float], numbers: int) -> list[tuple[float, ...]]:
    """Points of a line, each x, y and visibility."""
    points = [tuple(values[i : i + numbers]) for i in range(_BOX, len(values), numbers)]
    return points if numbers == 3 else [(x, y, 2.0 if x or y else 0.0) for x, y in points]


def _checked(points: Sequence[tuple[float, ...]]) -> NDArray[np.float32]:
    """(K, 3); a point without a label has no place either.

    Raises:
        UnusableLabelError: a visibility or a place that cannot be.
    """
    for position, (x, y, visibility) in enumerate(points):
        if visibility not in _VISIBILITIES:
            raise UnusableLabelError(f"visibility of point {position} is {visibility:g}; allowed: 0, 1 and 2")
        if visibility and not (is_place(x) and is_place(y)):
            raise UnusableLabelError(
                f"point {position} is at {x:g}, {y:g}; the numbers must be finite, and none beyond {FARTHEST}"
            )
    return np.array([point if point[2] else (0, 0, 0) for point in points], np.float32).reshape(-1, 3)


def _spec(category: Mapping[str, Any]) -> KeypointSpec:
    """Key points of one category of COCO JSON.

    Raises:
        UnusableLabelError: names or skeleton that cannot be used.
    """
    where, names, skeleton = f"{category.get('name')!r}:", category["keypoints"], category.get("skeleton") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UnusableLabelError(f"{where} keypoints is {names!r}; a list of names is needed")
    if not isinstance(skeleton, list) or not all(map(_is_pair, skeleton)):
        raise UnusableLabelError(f"{where} skeleton is {skeleton!r}; pairs of positions, counted from 1, are needed")
    lines = tuple((a - 1, b - 1) for a, b in skeleton)
    if skeleton_problem(lines, len(names)):
        raise UnusableLabelError(f"{where} skeleton is {skeleton}; positions of {len(names)} points count from 1")
    return KeypointSpec(tuple(names), lines, mirrored_positions(names), known_sigmas(names))


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(end) is int for end in value)


def _shown(spec: KeypointSpec, what: str) -> str:
    return ", ".join(spec.names) if what == "names" else str([[a + 1, b + 1] for a, b in spec.skeleton])


PARSER: LabelParser = KeypointParser()
