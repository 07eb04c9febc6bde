"""Splits written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.ops.detections import Detections

Objects = Sequence[tuple[float, float, float, float, int]]  # x1, y1, x2, y2, label; label -k - 1 is a crowd of class k


def build_split(
    images: Sequence[Objects],
    num_classes: int = 1,
    *,
    image_ids: Sequence[int] | None = None,
    category_ids: Sequence[int] | None = None,
) -> SplitIndex:
    """A split of 200 x 100 pictures with these objects; areas are box areas."""
    rows = np.array([row for objects in images for row in objects], np.float64).reshape(-1, 5)
    labels = rows[:, 4].astype(np.int64)
    boxes = rows[:, :4].astype(np.float32)
    return SplitIndex(
        name="val",
        source="by hand",
        class_names=tuple(f"class {i}" for i in range(num_classes)),
        category_ids=tuple(category_ids or range(num_classes)),
        paths=tuple(f"/pictures/{i}.jpg" for i in range(len(images))),
        image_ids=np.array(image_ids if image_ids is not None else range(len(images)), np.int64),
        sizes=np.tile(np.array([[200, 100]], np.int32), (len(images), 1)),
        offsets=np.cumsum([0, *(len(objects) for objects in images)]).astype(np.int64),
        boxes=boxes,
        classes=np.where(labels < 0, -labels - 1, labels),
        crowd=labels < 0,
        areas=(boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]),
    )


def build_detections(rows: Sequence[tuple[float, float, float, float, float, int]]) -> Detections:
    """Detections from x1, y1, x2, y2, score, label."""
    table = np.array(rows, np.float64).reshape(-1, 6)
    return Detections(table[:, :4].astype(np.float32), table[:, 4].astype(np.float32), table[:, 5].astype(np.int64))


@pytest.fixture(scope="session")
def make_split() -> Callable[..., SplitIndex]:
    return build_split


@pytest.fixture(scope="session")
def make_detections() -> Callable[..., Detections]:
    return build_detections


@pytest.fixture(scope="session")
def random_case() -> Callable[[int], tuple[SplitIndex, list[Detections]]]:
    """A split with crowds, empty images, classes without objects, ids with gaps; jittered detections with ties."""

    def build(seed: int) -> tuple[SplitIndex, list[Detections]]:
        rng = np.random.default_rng(seed)
        images, found = [], []
        for _ in range(12):
            count = int(rng.integers(0, 9))
            corner, side = rng.uniform(0, 60, (count, 2)), rng.uniform(4, 120, (count, 2))
            labels = rng.integers(0, 4, count)
            crowd = rng.random(count) < 0.15
            boxes = np.concatenate([corner, corner + side], axis=1)
            images.append(
                [(*box, -label - 1 if c else label) for box, label, c in zip(boxes, labels, crowd, strict=True)]
            )
            extra = int(rng.integers(0, 5))
            start = rng.uniform(0, 100, (extra, 2))
            boxes = np.concatenate([boxes + rng.normal(0, 3, boxes.shape), np.hstack([start, start + 30])])
            boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2])
            labels = np.concatenate([np.where(rng.random(count) < 0.8, labels, 4), rng.integers(0, 5, extra)])
            scores = np.round(rng.random(count + extra), 1)  # tenths: many ties
            order = np.argsort(-scores, kind="stable")
            rows = [
                (*box, score, label)
                for box, score, label in zip(boxes[order], scores[order], labels[order], strict=True)
            ]
            found.append(build_detections(rows))
        ids = rng.permutation(100)[:12]
        return build_split(images, 5, image_ids=ids, category_ids=(90, 3, 7, 1, 55)), found

    return build
