"""From raw predictions to detections: top-k of the one-to-one branch, suppression of the one-to-many branch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lucid_yolo.nn.predictions import BranchPredictions
from lucid_yolo.ops.anchors import Anchors
from lucid_yolo.ops.boxes import ltrb_to_xyxy
from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.letterbox import Letterbox
from lucid_yolo.ops.nms import batched_nms
from lucid_yolo.tasks.base import Decoder
from lucid_yolo.tasks.two_branches import ONE_TO_ONE


class DecodedBoxes(NamedTuple):
    """Detections of a batch on the canvas, best first, on the device.

    Attributes:
        boxes: (B, K, 4) xyxy, canvas pixels.
        scores: (B, K) in 0 .. 1; 0 in padding.
        classes: (B, K) int64 labels.
        anchors: (B, K) int64 positions of the anchors they come from, at which other tasks read more.
    """

    boxes: Tensor
    scores: Tensor
    classes: Tensor
    anchors: Tensor


class KeptRows(NamedTuple):
    """Detections of one picture, and where they stood.

    Attributes:
        detections: in the frame of the original picture.
        rows: (N,) int64 positions among the K of the image.
    """

    detections: Detections
    rows: NDArray[np.int64]


def decode_boxes(decoder: Decoder, branch: BranchPredictions, anchors: Anchors) -> DecodedBoxes:
    """Decode the branch of a decoder in its way, with the usual limits.

    Args:
        decoder: one-to-one or one-to-many.
        branch: its raw predictions.
        anchors: anchor points of the canvas.
    """
    decode = decode_one_to_one if decoder == ONE_TO_ONE else decode_one_to_many
    return decode(branch, anchors)


@torch.no_grad()
def decode_one_to_one(branch: BranchPredictions, anchors: Anchors, *, limit: int = 300) -> DecodedBoxes:
    """Take the anchors whose best class scores highest; that branch has learned to mark an object once.

    Args:
        branch: raw predictions of the one-to-one branch.
        anchors: anchor points of the canvas.
        limit: most detections an image.

    Returns:
        ``K = min(limit, A)`` detections an image.
    """
    boxes, scores, classes = _best_class(branch, anchors)
    scores, best = scores.topk(min(limit, scores.shape[1]), dim=1)
    return DecodedBoxes(torch.take_along_dim(boxes, best.unsqueeze(-1), 1), scores, classes.gather(1, best), best)


@torch.no_grad()
def decode_one_to_many(
    branch: BranchPredictions, anchors: Anchors, *, confidence: float = 0.001, iou: float = 0.7, limit: int = 300
) -> DecodedBoxes:
    """Suppress, class by class, all but the best of overlapping boxes; an anchor has its best class only.

    Args:
        branch: raw predictions of the one-to-many branch.
        anchors: anchor points of the canvas.
        confidence: an anchor scores more than this.
        iou: boxes of one class overlap at most by this.
        limit: most detections an image.

    Returns:
        ``K = min(limit, A)`` detections an image, padded with score 0.
    """
    boxes, scores, classes = _best_class(branch, anchors)
    kept = batched_nms(boxes, scores, classes, iou=iou, confidence=confidence, limit=limit)
    return DecodedBoxes(
        torch.take_along_dim(boxes, kept.indices.unsqueeze(-1), 1),
        torch.where(kept.valid, scores.gather(1, kept.indices), 0.0),
        classes.gather(1, kept.indices),
        kept.indices,
    )


def to_detections(decoded: DecodedBoxes, letterboxes: Sequence[Letterbox]) -> list[Detections]:
    """Bring detections to the host and into the frames of the original pictures, clipped to them.

    Padding goes, and so does what has no area in its picture.

    Args:
        decoded: of a batch.
        letterboxes: placement of each picture of the batch.
    """
    return [kept.detections for kept in to_kept_rows(decoded, letterboxes)]


def to_kept_rows(decoded: DecodedBoxes, letterboxes: Sequence[Letterbox]) -> list[KeptRows]:
    """The same with the positions of what is kept, for tasks whose detections have more than a box.

    Args:
        decoded: of a batch.
        letterboxes: placement of each picture of the batch.
    """
    rows = torch.cat((decoded.boxes.double(), decoded.scores.double()[..., None], decoded.classes[..., None]), -1)
    kept = []
    for image, letterbox in zip(rows.cpu().numpy(), letterboxes, strict=True):
        size = np.array([letterbox.width, letterbox.height] * 2, dtype=np.float32)
        boxes = np.clip(letterbox.boxes_to_picture(image[:, :4]), 0, size)
        keep = (image[:, 4] > 0) & (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
        scores, classes = image[keep, 4].astype(np.float32), image[keep, 5].astype(np.int64)
        kept.append(KeptRows(Detections(boxes[keep], scores, classes), np.flatnonzero(keep)))
    return kept


def at_anchors(values: Tensor, anchors: Tensor) -> Tensor:
    """Read a further output of the network where the detections come from.

    Args:
        values: (B, A, ...) one entry an anchor.
        anchors: (B, K) positions, see ``DecodedBoxes``.

    Returns:
        (B, K, ...).
    """
    images = torch.arange(len(anchors), device=anchors.device).unsqueeze(1)
    return values[images, anchors]


def _best_class(branch: BranchPredictions, anchors: Anchors) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes (B, A, 4) on the canvas, probability (B, A) and label (B, A) of each anchor's best class, float32."""
    anchors = anchors.to(branch.logits.device)
    with torch.autocast(branch.logits.device.type, enabled=False):
        logits, classes = branch.logits.float().max(-1)
        boxes = ltrb_to_xyxy(branch.distances.float(), anchors.origins(), anchors.signed_strides())
    return boxes, logits.sigmoid(), classes
