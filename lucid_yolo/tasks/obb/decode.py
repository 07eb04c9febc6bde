"""From raw predictions to rotated boxes of the original pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lucid_yolo.nn.predictions import ObbBranch
from lucid_yolo.ops.anchors import Anchors
from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.letterbox import Letterbox
from lucid_yolo.ops.rotated import anchors_to_canvas, ltrb_to_rotated
from lucid_yolo.ops.rotated_iou import rotated_nms
from lucid_yolo.ops.rotated_np import corners, envelopes, from_corners


class RotatedRows(NamedTuple):
    """Detections of one image on the canvas, best first, on the host.

    Attributes:
        boxes: (N, 5) cx, cy, w, h in canvas pixels and theta in radians, any encoding.
        scores: (N,) in 0 .. 1.
        classes: (N,) int64 labels.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    classes: NDArray[np.int64]

    def take(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> RotatedRows:
        """Pick detections."""
        return RotatedRows(self.boxes[rows], self.scores[rows], self.classes[rows])


@torch.no_grad()
def decode_one_to_one(branch: ObbBranch, anchors: Anchors, *, limit: int = 300) -> list[RotatedRows]:
    """Take the anchors whose best class scores highest; that branch has learned to mark an object once.

    Args:
        branch: raw predictions of the one-to-one branch.
        anchors: anchor points of the canvas.
        limit: most detections an image.

    Returns:
        ``min(limit, A)`` detections for each image.
    """
    boxes, scores, classes = _best_class(branch, anchors)
    scores, best = scores.topk(min(limit, scores.shape[1]), dim=1)
    return _to_host(torch.take_along_dim(boxes, best.unsqueeze(-1), 1), scores, classes.gather(1, best))


@torch.no_grad()
def decode_one_to_many(
    branch: ObbBranch, anchors: Anchors, *, confidence: float = 0.001, iou: float = 0.7, limit: int = 300
) -> list[RotatedRows]:
    """Suppress, class by class, all but the best of overlapping boxes; an anchor has its best class only.

    Args:
        branch: raw predictions of the one-to-many branch.
        anchors: anchor points of the canvas.
        confidence: an anchor scores more than this.
        iou: boxes of one class overlap at most by this, exactly and at their angles.
        limit: most detections an image.

    Returns:
        At most ``limit`` detections for each image.
    """
    return [
        rows.take(rotated_nms(*rows, iou=iou, confidence=confidence, limit=limit))
        for rows in _to_host(*_best_class(branch, anchors))
    ]


def to_detections(decoded: Sequence[RotatedRows], letterboxes: Sequence[Letterbox]) -> list[Detections]:
    """Bring detections into the frames of the original pictures.

    Rotated boxes are canonical and not clipped, the upright boxes around them are. What has no area goes, in its
    picture or by itself, and so does what is not finite.

    Args:
        decoded: one entry an image.
        letterboxes: placement of each picture of the batch.
    """
    detections = []
    for rows, letterbox in zip(decoded, letterboxes, strict=True):
        usable = np.isfinite(rows.boxes).all(axis=1) & (rows.boxes[:, 2:4] > 0).all(axis=1) & (rows.scores > 0)
        found = rows.take(usable)
        rotated = from_corners(letterbox.points_to_picture(corners(found.boxes)))
        size = np.array([letterbox.width, letterbox.height] * 2, dtype=np.float32)
        boxes = np.clip(envelopes(rotated), 0, size).astype(np.float32)
        inside = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
        found = found.take(inside)
        detections.append(
            Detections(boxes[inside], found.scores, found.classes, rotated=rotated[inside].astype(np.float32))
        )
    return detections


def _best_class(branch: ObbBranch, anchors: Anchors) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes (B, A, 5) on the canvas, probability (B, A) and label (B, A) of each anchor's best class, float32."""
    anchors = anchors.to(branch.logits.device)
    with torch.autocast(branch.logits.device.type, enabled=False):
        logits, classes = branch.logits.float().max(-1)
        boxes = ltrb_to_rotated(branch.distances.float(), branch.angles.float())
        return anchors_to_canvas(boxes, anchors.centers, anchors.strides), logits.sigmoid(), classes


def _to_host(boxes: Tensor, scores: Tensor, classes: Tensor) -> list[RotatedRows]:
    """Detections image by image, in one copy; labels are small enough for float32."""
    rows = torch.cat((boxes, scores.unsqueeze(-1), classes.unsqueeze(-1)), -1).cpu().numpy()
    return [RotatedRows(image[:, :5], image[:, 5], image[:, 6].astype(np.int64)) for image in rows]
