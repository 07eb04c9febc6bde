"""Detections keep what belongs together."""

from __future__ import annotations

import numpy as np
import pytest

from lucid_yolo.ops.detections import Detections, join_detections
from lucid_yolo.ops.rle import Rle

MASKS = tuple(Rle.encode(np.arange(12).reshape(3, 4) == i) for i in range(3))
FOUND = Detections(
    boxes=np.arange(12, dtype=np.float32).reshape(3, 4),
    scores=np.array([0.9, 0.5, 0.2], np.float32),
    classes=np.array([4, 5, 6]),
    masks=MASKS,
    keypoints=np.arange(18, dtype=np.float32).reshape(3, 2, 3),
    rotated=np.arange(15, dtype=np.float32).reshape(3, 5),
)


@pytest.mark.parametrize("rows", [np.array([2, 0]), np.array([True, False, True]), np.zeros(0, np.int64)])
def test_every_column_follows(rows: np.ndarray) -> None:
    positions = np.flatnonzero(rows).tolist() if rows.dtype == bool else rows.tolist()
    taken = FOUND.take(rows)
    assert len(taken) == len(positions)
    assert taken.classes.tolist() == [4 + i for i in positions]
    assert taken.scores.tolist() == [FOUND.scores[i] for i in positions]
    assert taken.masks == tuple(MASKS[i] for i in positions)
    for name, width in (("boxes", 4), ("keypoints", 6), ("rotated", 5)):
        assert [row.ravel()[0] for row in getattr(taken, name)] == [width * i for i in positions]


def test_what_a_task_has_not_stays_none() -> None:
    plain = Detections(FOUND.boxes, FOUND.scores, FOUND.classes).take(np.array([1]))
    assert (plain.masks, plain.keypoints, plain.rotated) == (None, None, None)


def test_joining_puts_every_column_behind_the_other() -> None:
    joined = join_detections(
        [FOUND.take(np.array([2])), FOUND.take(np.zeros(0, np.int64)), FOUND.take(np.array([0, 1]))]
    )
    expected = FOUND.take(np.array([2, 0, 1]))
    assert joined.masks == expected.masks
    for name in ("boxes", "scores", "classes", "keypoints", "rotated"):
        assert np.array_equal(getattr(joined, name), getattr(expected, name))
    plain = Detections(FOUND.boxes, FOUND.scores, FOUND.classes)
    joined = join_detections([plain, plain])
    assert joined.classes.tolist() == [4, 5, 6, 4, 5, 6]
    assert (joined.masks, joined.keypoints, joined.rotated) == (None, None, None)


def test_above_a_confidence() -> None:
    assert FOUND.above(0.5).classes.tolist() == [4, 5]
    assert FOUND.above(0.5).masks == MASKS[:2]
