"""Decoding against a sort, against slow suppression, and back into the pictures by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from lucid_yolo.nn.predictions import BranchPredictions
from lucid_yolo.ops.anchors import Anchors, make_anchors
from lucid_yolo.ops.boxes import pairwise_iou
from lucid_yolo.ops.letterbox import Letterbox, letterbox_for
from lucid_yolo.tasks.detect.decode import DecodedBoxes, decode_one_to_many, decode_one_to_one, to_detections

ANCHORS = make_anchors(64, (8, 16, 32))


def make_branch(seed: int, anchors: Anchors = ANCHORS, classes: int = 3) -> BranchPredictions:
    generator = torch.Generator().manual_seed(seed)
    distances = torch.rand(2, len(anchors), 4, generator=generator) * 2
    return BranchPredictions(distances, torch.randn(2, len(anchors), classes, generator=generator) * 2)


def candidates(
    branch: BranchPredictions, image: int, anchors: Anchors = ANCHORS
) -> list[tuple[float, int, list[float]]]:
    """(score, class, box) of each anchor, in Python."""
    found = []
    for a, ((x, y), s) in enumerate(zip(anchors.centers.tolist(), anchors.strides.tolist(), strict=True)):
        left, top, right, bottom = branch.distances[image, a].tolist()
        probabilities = branch.logits[image, a].sigmoid().tolist()
        best = max(range(len(probabilities)), key=lambda c: probabilities[c])
        found.append((probabilities[best], best, [x - left * s, y - top * s, x + right * s, y + bottom * s]))
    return found


def assert_rows(decoded: DecodedBoxes, image: int, expected: list[tuple[float, int, list[float]]]) -> None:
    count = len(expected)
    torch.testing.assert_close(decoded.scores[image, :count], torch.tensor([e[0] for e in expected]))
    assert decoded.classes[image, :count].tolist() == [e[1] for e in expected]
    torch.testing.assert_close(decoded.boxes[image, :count], torch.tensor([e[2] for e in expected]))


@pytest.mark.parametrize("limit", [1, 20, 300])
def test_one_to_one_is_the_head_of_a_sort(limit: int) -> None:
    branch = make_branch(0)
    decoded = decode_one_to_one(branch, ANCHORS, limit=limit)
    assert decoded.scores.shape == (2, min(limit, len(ANCHORS)))
    for image in range(2):
        assert_rows(decoded, image, sorted(candidates(branch, image), key=lambda c: -c[0])[:limit])


@pytest.mark.parametrize(("confidence", "limit"), [(0.001, 300), (0.6, 300), (0.001, 7)])
def test_one_to_many_is_greedy_suppression_a_class(confidence: float, limit: int) -> None:
    branch = make_branch(1)
    decoded = decode_one_to_many(branch, ANCHORS, confidence=confidence, iou=0.4, limit=limit)
    for image in range(2):
        kept: list[tuple[float, int, list[float]]] = []
        for one in sorted(candidates(branch, image), key=lambda c: -c[0]):
            boxes = [k[2] for k in kept if k[1] == one[1]]
            free = not boxes or pairwise_iou(torch.tensor([one[2]]), torch.tensor(boxes)).max() <= 0.4
            if one[0] > confidence and free:
                kept.append(one)
        kept = kept[:limit]
        assert_rows(decoded, image, kept)
        assert (decoded.scores[image, len(kept) :] == 0).all()


def test_half_precision_predictions_decode_in_float32() -> None:
    branch = make_branch(2)
    half = BranchPredictions(*(t.bfloat16() for t in branch))
    widened = BranchPredictions(*(t.float() for t in half))
    with torch.autocast("cpu", torch.bfloat16):
        decoded = decode_one_to_one(half, ANCHORS)
    expected = decode_one_to_one(widened, ANCHORS)
    assert all(torch.equal(a, b) for a, b in zip(decoded, expected, strict=True))


def decoded_rows(*images: list[tuple[list[float], float, int]]) -> DecodedBoxes:
    def column(i: int) -> list[list[object]]:
        return [[row[i] for row in image] for image in images]

    anchors = torch.zeros(len(images), len(images[0]), dtype=torch.int64)
    return DecodedBoxes(torch.tensor(column(0)), torch.tensor(column(1)), torch.tensor(column(2)), anchors)


def test_detections_return_to_the_frames_of_their_pictures() -> None:
    # 200 x 100 on 64 px: scale 0.32, 16 px of padding above and below. 32 x 64: scale 1, 16 px left and right.
    decoded = decoded_rows(
        [
            ([16.0, 24.0, 32.0, 40.0], 0.9, 2),  # (50, 25, 100, 75)
            ([-8.0, 10.0, 80.0, 60.0], 0.8, 1),  # reaches over every edge
            ([0.0, 0.0, 64.0, 15.0], 0.7, 0),  # in the padding only
            ([40.0, 40.0, 30.0, 30.0], 0.6, 0),  # inverted
            ([10.0, 20.0, 30.0, 40.0], 0.0, 0),  # padding row
        ],
        [([20.0, 1.0, 40.0, 3.0], 0.5, 0)] + [([0.0] * 4, 0.0, 0)] * 4,
    )
    wide, upright = to_detections(decoded, [letterbox_for(200, 100, 64), letterbox_for(32, 64, 64)])
    np.testing.assert_allclose(wide.boxes, [[50, 25, 100, 75], [0, 0, 200, 100]], atol=1e-4)
    np.testing.assert_allclose(wide.scores, [0.9, 0.8], atol=1e-7)
    assert wide.classes.tolist() == [2, 1]
    np.testing.assert_allclose(upright.boxes, [[4, 1, 24, 3]], atol=1e-4)
    assert (wide.boxes.dtype, wide.scores.dtype, wide.classes.dtype) == (np.float32, np.float32, np.int64)


def test_an_image_without_any_detection_gives_empty_columns() -> None:
    (nothing,) = to_detections(decoded_rows([([0.0] * 4, 0.0, 0)] * 3), [Letterbox(1.0, 0.0, 0.0, 64, 64)])
    assert nothing.boxes.shape == (0, 4)
    assert len(nothing) == 0


def test_scores_survive_the_way_to_the_host_bit_for_bit() -> None:
    scores: Tensor = torch.rand(1, 50).sort(descending=True).values
    boxes = torch.tensor([1.0, 1.0, 9.0, 9.0]).expand(1, 50, 4)
    decoded = DecodedBoxes(boxes, scores, *[torch.zeros(1, 50, dtype=torch.int64)] * 2)
    (found,) = to_detections(decoded, [Letterbox(1.0, 0.0, 0.0, 64, 64)])
    assert np.array_equal(found.scores, scores[0].numpy())
