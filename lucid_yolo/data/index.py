"""One split of a data set as columns: what a reader returns and everything else reads.

Columns instead of a dict an image: forked workers share the pages (reference counting would copy Python objects),
and spawned workers unpickle a few arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.data.labels.base import KeypointSpec, Labels, LabelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitIndex:
    """Images and labels of one split, checked.

    Objects of image ``i`` are the rows ``offsets[i]:offsets[i + 1]`` of the object columns.

    Attributes:
        name: "train", "val" or "test".
        source: file or folder that the labels come from, for messages.
        class_names: one name a class; the label of a class is its position.
        category_ids: the data set's own id of each class, same order.
        paths: absolute path of each image.
        image_ids: (N,) the data set's own image ids (a running number where it has none).
        sizes: (N, 2) width and height in pixels, as displayed (after the EXIF rule of the configuration).
        offsets: (N + 1,) first object row of each image.
        boxes: (T, 4) xyxy pixels, float32.
        classes: (T,) labels 0 .. C-1.
        crowd: (T,) regions of many objects: never positives, ignored in evaluation.
        areas: (T,) square pixels, as the data set states them (else box area).
        labels: of the T objects, beside box and class; None where the task needs none.
        keypoints: what the key points are; None unless the labels are key points.
        notes: one sentence for each thing a user should know (dropped zero-size boxes, backgrounds, ...).
    """

    name: str
    source: str
    class_names: tuple[str, ...]
    category_ids: tuple[int, ...]
    paths: tuple[str, ...]
    image_ids: NDArray[np.int64]
    sizes: NDArray[np.int32]
    offsets: NDArray[np.int64]
    boxes: NDArray[np.float32]
    classes: NDArray[np.int64]
    crowd: NDArray[np.bool_]
    areas: NDArray[np.float32]
    labels: Labels | None = None
    keypoints: KeypointSpec | None = None
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def spec(self) -> LabelSpec:
        """What the labels ask of a network."""
        return LabelSpec(self.num_classes, self.keypoints)

    @property
    def num_crowds(self) -> int:
        """Number of crowd regions; one that is a crowd of several classes counts once."""
        images = np.repeat(np.arange(len(self)), np.diff(self.offsets))[self.crowd]
        return len(np.unique(np.column_stack([images, self.boxes[self.crowd]]), axis=0))

    def rows(self, image: int) -> slice:
        """Object rows of one image."""
        return slice(int(self.offsets[image]), int(self.offsets[image + 1]))
