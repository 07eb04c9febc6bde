"""From raw predictions to key points of the original pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lucid_yolo.ops.anchors import Anchors
from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.letterbox import Letterbox
from lucid_yolo.tasks.detect.decode import DecodedBoxes, at_anchors, to_kept_rows


@torch.no_grad()
def decode_points(decoded: DecodedBoxes, points: Tensor, anchors: Anchors) -> Tensor:
    """Place the points of detections on the canvas and score them.

    A point is its anchor's centre plus the offset in strides. Its score is one minus the mean of the spreads along x
    and y after their sigmoid, as residual log-likelihood estimation has it (arXiv 2107.11291): the network states how
    far off it expects to be. The score of a detection stays that of its class.

    Args:
        decoded: boxes of a batch, from either branch.
        points: (B, A, K, 4) of the same branch, see ``KeypointBranch``.
        anchors: anchor points of the canvas.

    Returns:
        (B, N, K, 3) float32 x and y in canvas pixels and score in 0 .. 1, of N detections an image.
    """
    anchors = anchors.to(points.device)
    raw = at_anchors(points, decoded.anchors).float()
    centers = anchors.centers[decoded.anchors].unsqueeze(2)
    strides = anchors.strides[decoded.anchors].unsqueeze(-1).unsqueeze(-1)
    scores = 1 - raw[..., 2:].sigmoid().mean(-1, keepdim=True)
    return torch.cat((centers + raw[..., :2] * strides, scores), -1)


def to_keypoint_detections(decoded: DecodedBoxes, points: Tensor, letterboxes: Sequence[Letterbox]) -> list[Detections]:
    """Bring detections with their points to the host and into the frames of the original pictures.

    Boxes are clipped to the pictures, points are not: one that is expected outside would be wrong at the edge.

    Args:
        decoded: boxes of a batch, from either branch.
        points: (B, N, K, 3) see :func:`decode_points`.
        letterboxes: placement of each picture of the batch.
    """
    detections = []
    kept = to_kept_rows(decoded, letterboxes)
    for (found, rows), image, letterbox in zip(kept, points.cpu().numpy(), letterboxes, strict=True):
        keypoints = np.concatenate([letterbox.points_to_picture(image[rows, :, :2]), image[rows, :, 2:]], axis=-1)
        detections.append(replace(found, keypoints=keypoints))
    return detections
