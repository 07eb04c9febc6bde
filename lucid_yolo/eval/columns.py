"""Detections of a whole split as columns, which is what every evaluator counts over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.rle import Rle

ImageDetections = Mapping[int, Detections] | Sequence[Detections]
"""Detections by position of the image in the split; a position that a mapping lacks has no detections."""


@dataclass(frozen=True, slots=True)
class DetectionColumns:
    """All detections of a split, image after image, in the order in which each image lists them.

    Attributes:
        images: (N,) positions of the images in the split.
        boxes: (N, 4) float64 xyxy, pixels of the original picture.
        scores: (N,) float64.
        classes: (N,) labels.
        invalid: detections left out because a number was not finite.
        masks: N masks; None where the detections have none, as the next two.
        keypoints: (N, K, 3) float64 x, y, score.
        rotated: (N, 5) float64 cx, cy, w, h, theta.
    """

    images: NDArray[np.int64]
    boxes: NDArray[np.float64]
    scores: NDArray[np.float64]
    classes: NDArray[np.int64]
    invalid: int
    masks: tuple[Rle, ...] | None = None
    keypoints: NDArray[np.float64] | None = None
    rotated: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.scores)


def per_image(index: SplitIndex, detections: ImageDetections) -> list[tuple[int, Detections]]:
    """Pair image positions with their detections, in ascending order; images without detections may be absent.

    Raises:
        ValueError: a sequence whose length is not that of the split, or a position outside of the split.
    """
    if isinstance(detections, Mapping):
        pairs = sorted(detections.items(), key=lambda pair: pair[0])
        if pairs and not 0 <= pairs[0][0] <= pairs[-1][0] < len(index):
            outside = pairs[0][0] if pairs[0][0] < 0 else pairs[-1][0]
            raise ValueError(f"detections of image {outside}, but {index.source} has images 0 to {len(index) - 1}")
        return pairs
    if len(detections) != len(index):
        raise ValueError(f"detections of {len(detections)} images, but {index.source} has {len(index)}")
    return list(enumerate(detections))


def to_columns(index: SplitIndex, detections: ImageDetections) -> DetectionColumns:
    """Concatenate the detections of a split.

    A NaN or an infinity is left out and counted: NaN compares false with every threshold, and an evaluator that skips
    what is below the threshold would take it for a match.

    Raises:
        ValueError: see :func:`per_image`; or a label that the split does not have.
    """
    pairs = [(image, found) for image, found in per_image(index, detections) if len(found)]
    if not pairs:
        empty = np.zeros(0, np.int64)
        return DetectionColumns(empty, np.zeros((0, 4)), np.zeros(0), empty, 0)
    images = np.repeat([image for image, _ in pairs], [len(found) for _, found in pairs]).astype(np.int64)
    boxes = np.concatenate([found.boxes for _, found in pairs]).astype(np.float64).reshape(-1, 4)
    scores = np.concatenate([found.scores for _, found in pairs]).astype(np.float64)
    classes = np.concatenate([found.classes for _, found in pairs]).astype(np.int64)
    if classes.min() < 0 or classes.max() >= index.num_classes:
        wrong = classes.min() if classes.min() < 0 else classes.max()
        raise ValueError(f"a detection of class {wrong}, but {index.source} has classes 0 to {index.num_classes - 1}")
    masks = [mask for _, found in pairs if found.masks is not None for mask in found.masks]
    keypoints = _concatenated([found.keypoints for _, found in pairs])
    rotated = _concatenated([found.rotated for _, found in pairs])
    finite = np.isfinite(boxes).all(axis=1) & np.isfinite(scores)
    for further in (keypoints, rotated):
        if further is not None:
            finite &= np.isfinite(further).reshape(len(finite), -1).all(axis=1)
    return DetectionColumns(
        images[finite],
        boxes[finite],
        scores[finite],
        classes[finite],
        invalid=int(len(finite) - finite.sum()),
        masks=tuple(masks[i] for i in np.flatnonzero(finite).tolist()) if masks else None,
        keypoints=None if keypoints is None else keypoints[finite],
        rotated=None if rotated is None else rotated[finite],
    )


def _concatenated(columns: Sequence[NDArray[np.float32] | None]) -> NDArray[np.float64] | None:
    """One column of all images; None where the detections have none."""
    present = [column for column in columns if column is not None]
    return np.concatenate(present).astype(np.float64) if present else None


def to_xywh(boxes: NDArray[np.floating]) -> NDArray[np.float64]:
    """Convert (N, 4) xyxy to COCO's left, top, width, height, in float64."""
    corners = np.asarray(boxes, np.float64).reshape(-1, 4)
    return np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)
