"""Detections of a split as COCO results, which the COCO tools read as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.eval.coco import IouType
from lucid_yolo.eval.columns import DetectionColumns, ImageDetections, to_columns, to_xywh


def result_types(detections: ImageDetections) -> tuple[IouType, ...]:
    """What can be said of detections, the main thing first."""
    images = list(detections.values() if isinstance(detections, Mapping) else detections)
    if any(found.masks is not None for found in images):
        return IouType.MASKS, IouType.BOXES
    if any(found.keypoints is not None for found in images):
        return IouType.KEYPOINTS, IouType.BOXES
    return (IouType.BOXES,)


def to_coco_json(
    index: SplitIndex, detections: ImageDetections, iou_type: IouType = IouType.BOXES
) -> list[dict[str, Any]]:
    """Detections as COCO result records, with the data set's own image and category ids.

    A record has the box (left, top, width, height in pixels), the mask or the key points, and not several of them:
    beside a box, ``COCO.loadRes`` would take the area of the box for that of the mask.

    Args:
        index: the split.
        detections: by position of the image, pixels of the original picture.
        iou_type: what the records say.

    Raises:
        ValueError: detections that do not fit the split, or that do not have that.
    """
    columns = to_columns(index, detections)
    image_ids = index.image_ids[columns.images].tolist()
    category_ids = np.asarray(index.category_ids, np.int64)[columns.classes].tolist()
    rows = zip(image_ids, category_ids, _fields(columns, iou_type), columns.scores.tolist(), strict=True)
    return [
        {"image_id": image, "category_id": category, **fields, "score": score}
        for image, category, fields, score in rows
    ]


def _fields(columns: DetectionColumns, iou_type: IouType) -> Iterable[dict[str, Any]]:
    boxes = to_xywh(columns.boxes).tolist()
    if iou_type is IouType.MASKS and columns.masks is not None:
        return ({"segmentation": mask.as_json()} for mask in columns.masks)
    if iou_type is IouType.KEYPOINTS and columns.keypoints is not None:
        return ({"keypoints": one.ravel().tolist()} for one in columns.keypoints)
    if iou_type is not IouType.BOXES and len(columns):
        raise ValueError(f"the detections have nothing to compare by {iou_type.value}")
    if columns.rotated is not None:  # the COCO tools pass over what they do not know
        return ({"bbox": box, "rotated": row} for box, row in zip(boxes, columns.rotated.tolist(), strict=True))
    return ({"bbox": box} for box in boxes)
