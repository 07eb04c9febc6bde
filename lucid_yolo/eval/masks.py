"""COCO average precision of masks by pycocotools, at the size of the original pictures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from pycocotools import mask as coco_mask
from pycocotools.cocoeval import Params

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.eval.coco import Fields, IouType, evaluate_boxes, evaluate_regions, score_boxes, score_regions
from lucid_yolo.eval.columns import DetectionColumns, ImageDetections
from lucid_yolo.eval.confusion import Overlaps
from lucid_yolo.eval.metrics import SplitMetrics
from lucid_yolo.eval.recall import Recall, recall_at

MEDIUM_AREA = 32.0**2
"""Square pixels from which on COCO calls an object no longer small."""


class MaskLabels(Protocol):
    """Labels whose objects have masks."""

    def coco_rle(self, row: int, height: int, width: int) -> dict[str, Any]:
        """Mask of an object in its picture as compressed run lengths of the COCO tools."""
        ...


def evaluate_masks(index: SplitIndex, detections: ImageDetections) -> SplitMetrics:
    """Score masks, and beside them the boxes.

    Curves and confusion are by the IoU of masks. Crowds are ignored regions. The areas of the data set decide which
    objects are small, medium and large, the area of its mask decides it of a detection.

    Args:
        index: the split; its labels are masks.
        detections: by position of the image, with masks of the size of the original picture.

    Raises:
        ValueError: detections that do not fit the split, or either without masks.
    """
    masks = evaluate_regions(index, detections, MaskCriterion(_truth_masks(index)))
    return SplitMetrics(masks, {"box": evaluate_boxes(index, detections)})


def score_masks(index: SplitIndex, detections: ImageDetections) -> SplitMetrics:
    """Give the numbers of ``evaluate_masks`` that belong to no range of areas and no limit, in less time.

    Raises:
        ValueError: as ``evaluate_masks``.
    """
    masks = score_regions(index, detections, MaskCriterion(_truth_masks(index)))
    return SplitMetrics(masks, {"box": score_boxes(index, detections)})


def recall_of_masks(index: SplitIndex, detections: ImageDetections) -> Recall:
    """Count the objects of at least 32 x 32 pixels whose mask a detection of their class finds, at IoU 0.5.

    Args:
        index: the split; its labels are masks.
        detections: by position of the image, with masks of the size of the original picture.

    Raises:
        ValueError: as ``evaluate_masks``.
    """
    overlaps = MaskCriterion(_truth_masks(index))
    return recall_at(index, detections, overlaps=overlaps, min_side=0.0, min_area=MEDIUM_AREA)


@dataclass(frozen=True, slots=True)
class MaskCriterion:
    """Masks; see ``Criterion``. It pairs by masks, too: ``Overlaps``.

    Attributes:
        masks: of the objects of a split, as the COCO tools take them.
        iou_type: name of the comparison.
    """

    masks: list[Fields]
    iou_type: IouType = IouType.MASKS

    @property
    def overlaps(self) -> Overlaps:
        """Overlap of masks."""
        return self

    def configure(self, params: Params) -> None:
        """COCO's settings."""

    def truth(self, index: SplitIndex) -> Iterable[Fields]:
        """Masks."""
        return ({"segmentation": mask} for mask in self.masks)

    def found(self, index: SplitIndex, columns: DetectionColumns) -> Iterable[Fields]:
        """Masks and their areas."""
        # One by one: of a list, pycocotools 2.0.11 counts the masks in a byte, and fails from 256 on.
        return ({"segmentation": mask, "area": int(coco_mask.area(mask))} for mask in mask_column(index, columns))

    def counts(self, index: SplitIndex) -> NDArray[np.bool_]:
        """All but crowds."""
        return ~index.crowd

    def iou(
        self, index: SplitIndex, columns: DetectionColumns, found: NDArray[np.int64], objects: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Intersection over union of masks."""
        return self._overlap(columns, found, objects, crowd=False)

    def coverage(
        self, index: SplitIndex, columns: DetectionColumns, found: NDArray[np.int64], objects: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Share of each mask that lies in each crowd."""
        return self._overlap(columns, found, objects, crowd=True)

    def _overlap(
        self, columns: DetectionColumns, found: NDArray[np.int64], objects: NDArray[np.int64], *, crowd: bool
    ) -> NDArray[np.float64]:
        if not len(found) or not len(objects):
            return np.zeros((len(found), len(objects)))
        masks = columns.masks or ()
        detected, truth = [masks[i].as_coco() for i in found.tolist()], [self.masks[i] for i in objects.tolist()]
        return np.asarray(coco_mask.iou(detected, truth, [int(crowd)] * len(truth)), np.float64)


def mask_column(index: SplitIndex, columns: DetectionColumns) -> list[Fields]:
    """Masks of all detections as the COCO tools take them.

    Raises:
        ValueError: there are detections, and they have none, or of another size than their pictures: to the COCO tools
            such masks would overlap nothing.
    """
    if columns.masks is None and len(columns):
        raise ValueError("the detections have no masks")
    masks, sizes = columns.masks or (), index.sizes[columns.images].tolist()
    for image, mask, (width, height) in zip(columns.images.tolist(), masks, sizes, strict=True):
        if (mask.width, mask.height) != (width, height):
            raise ValueError(
                f"a mask of {mask.width} x {mask.height} in {index.paths[image]}, which has {width} x {height} pixels"
            )
    return [mask.as_coco() for mask in masks]


def _truth_masks(index: SplitIndex) -> list[Fields]:
    if index.labels is None:
        raise ValueError(f"{index.source} was read without masks")
    labels = cast(MaskLabels, index.labels)
    sizes = np.repeat(index.sizes, np.diff(index.offsets), axis=0).tolist()
    return [labels.coco_rle(row, height, width) for row, (width, height) in enumerate(sizes)]
