"""From the detections of windows to those of the picture that they cover.

Nothing is suppressed: each window answers for the detections whose centres lie in its core (``ops.tiling``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.ops.detections import Detections, join_detections
from lucid_yolo.ops.rotated_np import envelopes
from lucid_yolo.ops.tiling import Window


def merge_windows(found: Sequence[Detections], cover: Sequence[Window], *, width: int, height: int) -> Detections:
    """Bring what was found in the windows of a picture together.

    All that a window answers for is kept: the picture has no limit beside those of its windows.

    Args:
        found: detections of each window, in its own pixels.
        cover: the windows, at least one.
        width: of the picture, pixels.
        height: of the picture, pixels.

    Returns:
        Detections in pixels of the picture, best first; of equal scores, those of the first window.
    """
    if len(cover) == 1:
        return found[0]
    moved = []
    for one, window in zip(found, cover, strict=True):
        centers = _centers(one) + np.array([window.x, window.y])
        moved.append(move_to_picture(one.take(window.owns(centers)), window, width=width, height=height))
    joined = join_detections(moved)
    return joined.take(np.argsort(-joined.scores, kind="stable"))


def move_to_picture(found: Detections, window: Window, *, width: int, height: int) -> Detections:
    """Express detections of a window in the frame of its picture.

    Upright boxes stay clipped to the window, as they were found. Rotated ones were never clipped: the upright boxes
    around them are clipped to the picture instead.

    Args:
        found: in pixels of the window.
        window: part of the picture.
        width: of the picture, pixels.
        height: of the picture, pixels.
    """
    offset = np.array([window.x, window.y] * 2, np.float32)
    boxes, masks, keypoints, rotated = found.boxes + offset, found.masks, found.keypoints, found.rotated
    if masks is not None:
        masks = tuple(mask.placed(left=window.x, top=window.y, height=height, width=width) for mask in masks)
    if keypoints is not None:
        keypoints = keypoints + np.array([window.x, window.y, 0], np.float32)
    if rotated is not None:
        rotated = rotated + np.array([window.x, window.y, 0, 0, 0], np.float32)
        boxes = np.clip(envelopes(rotated), 0, [width, height] * 2).astype(np.float32)
    return replace(found, boxes=boxes, masks=masks, keypoints=keypoints, rotated=rotated)


def _centers(found: Detections) -> NDArray[np.float64]:
    """Centres, (N, 2) x, y in double precision: rounding would carry one at the edge of a core over it."""
    if found.rotated is not None:
        return found.rotated[:, :2].astype(np.float64)
    return (found.boxes[:, :2].astype(np.float64) + found.boxes[:, 2:]) / 2
