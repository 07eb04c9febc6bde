"""Key points by hand."""

from __future__ import annotations

import math

import numpy as np
import torch

from lucid_yolo.ops.anchors import make_anchors
from lucid_yolo.ops.letterbox import letterbox_for
from lucid_yolo.tasks.detect.decode import DecodedBoxes
from lucid_yolo.tasks.keypoints.decode import decode_points, to_keypoint_detections

ANCHORS = make_anchors(64, (8, 16, 32))  # 64 of stride 8, 16 of stride 16, 4 of stride 32


def decoded(boxes: list[list[float]], scores: list[float], anchors: list[int]) -> DecodedBoxes:
    return DecodedBoxes(
        torch.tensor([boxes]), torch.tensor([scores]), torch.zeros(1, len(boxes), dtype=torch.int64),
        torch.tensor([anchors]),
    )  # fmt: skip


def test_points_are_offsets_in_strides_and_scores_tell_the_spread() -> None:
    points = torch.zeros(1, len(ANCHORS), 2, 4)
    points[0, 9, 0] = torch.tensor([0.5, -0.25, math.log(1 / 3), math.log(1 / 3)])  # spread 1/4 along x and y
    points[0, 9, 1] = torch.tensor([0.0, 0.0, math.log(1 / 9), math.log(4)])  # 1/10 and 4/5
    points[0, 82, 1] = torch.tensor([-2.0, 1.0, 0.0, 0.0])
    one = decoded([[0.0, 0.0, 64.0, 64.0]] * 2, [0.9, 0.8], [9, 82])
    found = decode_points(one, points, ANCHORS)
    # anchor 9: second row and column of stride 8, centre (12, 12); anchor 82: lower left of stride 32, centre (16, 48)
    expected = [[[16.0, 10.0, 0.75], [12.0, 12.0, 0.55]], [[16.0, 48.0, 0.5], [-48.0, 80.0, 0.5]]]
    torch.testing.assert_close(found, torch.tensor([expected]))


def test_points_return_to_the_frames_of_their_pictures() -> None:
    # 200 x 100 on 64 px: scale 0.32, 16 px of padding above and below
    points = torch.tensor([[[[16.0, 24.0, 0.5]], [[1.0, 1.0, 0.5]], [[80.0, 8.0, 0.25]]]])
    one = decoded(
        [[16.0, 24.0, 32.0, 40.0], [0.0, 0.0, 64.0, 10.0], [16.0, 16.0, 48.0, 48.0]], [0.9, 0.8, 0.7], [0, 0, 0]
    )  # the second box lies in the padding
    (found,) = to_keypoint_detections(one, points, [letterbox_for(200, 100, 64)])
    assert found.keypoints is not None
    assert found.keypoints.dtype == np.float32
    np.testing.assert_allclose(found.keypoints, [[[50, 25, 0.5]], [[250, -25, 0.25]]], atol=1e-4)
    np.testing.assert_allclose(found.boxes, [[50, 25, 100, 75], [50, 0, 150, 100]], atol=1e-4)


def test_no_detection_keeps_the_number_of_points() -> None:
    one = decoded([[0.0] * 4], [0.0], [0])
    (found,) = to_keypoint_detections(one, torch.zeros(1, 1, 7, 3), [letterbox_for(64, 64, 64)])
    assert found.keypoints is not None
    assert found.keypoints.shape == (0, 7, 3)
