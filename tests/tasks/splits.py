"""A validation split of made-up pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import Labels


def make_val_split(
    boxes: NDArray[np.float32],
    classes: Sequence[int],
    *,
    counts: Sequence[int],
    sizes: Sequence[tuple[int, int]],
    areas: NDArray[np.floating],
    labels: Labels | None = None,
) -> SplitIndex:
    """Objects of three classes, image after image.

    Args:
        boxes: (T, 4) xyxy pixels.
        classes: T labels.
        counts: objects of each image.
        sizes: width and height of each image.
        areas: (T,) square pixels.
        labels: of the objects.
    """
    return SplitIndex(
        name="val",
        source="made up",
        class_names=("a", "b", "c"),
        category_ids=(1, 2, 3),
        paths=tuple(f"{i}.png" for i in range(len(sizes))),
        image_ids=np.arange(len(sizes)),
        sizes=np.array(sizes, np.int32),
        offsets=np.cumsum([0, *counts]),
        boxes=boxes,
        classes=np.array(classes),
        crowd=np.zeros(len(classes), bool),
        areas=areas,
        labels=labels,
    )
