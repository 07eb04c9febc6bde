"""Masks against interpolation in torch, and against the formula pixel by pixel."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lucid_yolo.ops.letterbox import Letterbox, letterbox_for
from lucid_yolo.tasks.detect.decode import DecodedBoxes
from lucid_yolo.tasks.segment.decode import to_segment_detections

SIZE, ANCHORS, MAPS = 64, 20, 5


def outputs(seed: int, images: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Coefficients (B, A, M) and prototypes (B, M, S/4, S/4)."""
    generator = torch.Generator().manual_seed(seed)
    coefficients = torch.rand(images, ANCHORS, MAPS, generator=generator) * 2 - 1
    return coefficients, torch.randn(images, MAPS, SIZE // 4, SIZE // 4, generator=generator)


def decoded(boxes: list[list[list[float]]], anchors: list[list[int]], scores: list[list[float]]) -> DecodedBoxes:
    classes = torch.zeros(len(boxes), len(boxes[0]), dtype=torch.int64)
    return DecodedBoxes(torch.tensor(boxes), torch.tensor(scores), classes, torch.tensor(anchors))


def slow_mask(logits: np.ndarray, box: np.ndarray, letterbox: Letterbox) -> tuple[np.ndarray, np.ndarray]:
    """Mask of a picture, and the logit of each of its pixels, from the definition."""
    side = len(logits)
    stride = SIZE / side
    values = np.zeros((letterbox.height, letterbox.width))
    inside = np.zeros(values.shape, bool)
    for y in range(letterbox.height):
        for x in range(letterbox.width):
            canvas_x = (x + 0.5) * letterbox.scaled_width / letterbox.width + letterbox.pad_x
            canvas_y = (y + 0.5) * letterbox.scaled_height / letterbox.height + letterbox.pad_y
            u, v = canvas_x / stride - 0.5, canvas_y / stride - 0.5
            for i in (math.floor(v), math.floor(v) + 1):
                for j in (math.floor(u), math.floor(u) + 1):
                    weight = (1 - abs(v - i)) * (1 - abs(u - j))
                    values[y, x] += weight * logits[min(max(i, 0), side - 1), min(max(j, 0), side - 1)]
            inside[y, x] = box[0] <= x + 0.5 < box[2] and box[1] <= y + 0.5 < box[3]
    return inside & (values > 0), values


def test_equals_upsampling_where_the_picture_is_the_canvas() -> None:
    coefficients, prototypes = outputs(0, 1)
    boxes = [[[0.0, 0.0, 64.0, 64.0], [3.4, 7.6, 40.2, 30.5], [10.0, 10.0, 12.0, 60.0]]]
    (found,) = to_segment_detections(
        decoded(boxes, [[4, 11, 0]], [[0.9, 0.8, 0.7]]), coefficients, prototypes, [letterbox_for(64, 64, SIZE)], SIZE
    )
    logits = torch.einsum("km,mhw->khw", coefficients[0, [4, 11, 0]], prototypes[0])
    expected = (F.interpolate(logits[None], size=SIZE, mode="bilinear", align_corners=False)[0] > 0).numpy()
    expected[1, :, :3] = expected[1, :8] = expected[1, :, 40:] = expected[1, 30:] = False
    expected[2, :, :10] = expected[2, :, 12:] = expected[2, :10] = expected[2, 60:] = False
    assert found.masks is not None
    for mask, truth in zip(found.masks, expected, strict=True):
        assert np.array_equal(mask.decode(), truth)
        assert 0.05 < truth.mean() / max(truth.any(0).mean() * truth.any(1).mean(), 1e-9) < 0.95


@pytest.mark.parametrize(("width", "height"), [(150, 90), (30, 50), (64, 20), (7, 129)])
def test_equals_the_formula_in_pictures_of_other_sizes(width: int, height: int) -> None:
    coefficients, prototypes = outputs(1, 2)
    letterboxes = [letterbox_for(width, height, SIZE)] * 2
    canvas = [[[-5.0, -5.0, 70.0, 70.0], [20.0, 22.0, 43.7, 41.2]]] * 2
    anchors = [[3, 17], [8, 8]]
    found = to_segment_detections(
        decoded(canvas, anchors, [[0.9, 0.8]] * 2), coefficients, prototypes, letterboxes, SIZE
    )
    for image in range(2):
        one, masks = found[image], found[image].masks
        assert masks is not None
        assert len(masks) == len(one) == 2
        for mask, box, anchor in zip(masks, one.boxes, anchors[image], strict=True):
            logits = np.einsum("m,mhw->hw", coefficients[image, anchor].double(), prototypes[image].double())
            expected, values = slow_mask(logits, box.astype(np.float64), letterboxes[image])
            assert (mask.height, mask.width) == (height, width)
            clear = np.abs(values) > 1e-4
            assert clear.mean() > 0.9
            assert np.array_equal(mask.decode()[clear], expected[clear])


def test_masks_follow_the_detections_that_are_kept() -> None:
    coefficients, prototypes = outputs(2, 1)
    boxes = [[[0.0, 0.0, 10.0, 10.0], [70.0, 70.0, 90.0, 90.0], [5.0, 5.0, 60.0, 60.0], [0.0, 0.0, 9.0, 9.0]]]
    letterboxes = [letterbox_for(64, 64, SIZE)]
    one = decoded(boxes, [[1, 2, 3, 4]], [[0.9, 0.8, 0.7, 0.0]])  # outside of the picture, and padding
    (found,) = to_segment_detections(one, coefficients, prototypes, letterboxes, SIZE)
    alone = decoded([boxes[0][2:3]], [[3]], [[0.7]])
    (expected,) = to_segment_detections(alone, coefficients, prototypes, letterboxes, SIZE)
    assert found.masks is not None
    assert expected.masks is not None
    assert found.scores.tolist() == pytest.approx([0.9, 0.7])
    assert found.masks[1] == expected.masks[0]


def test_nothing_found_and_boxes_between_pixel_centres() -> None:
    coefficients, prototypes = outputs(3, 1)
    letterboxes = [letterbox_for(64, 64, SIZE)]
    (nothing,) = to_segment_detections(
        decoded([[[0.0] * 4]], [[0]], [[0.0]]), coefficients, prototypes, letterboxes, SIZE
    )
    assert nothing.masks == ()
    (thin,) = to_segment_detections(
        decoded([[[10.6, 0.0, 11.4, 64.0]]], [[0]], [[0.5]]), coefficients, prototypes, letterboxes, SIZE
    )
    assert thin.masks is not None
    assert thin.masks[0].decode().shape == (64, 64)
    assert not thin.masks[0].decode().any()


def test_half_precision_maps_are_mixed_in_float32() -> None:
    coefficients, prototypes = (values.bfloat16() for values in outputs(4, 1))
    one = decoded([[[0.0, 0.0, 64.0, 64.0]]], [[5]], [[0.5]])
    letterboxes = [letterbox_for(64, 64, SIZE)]
    with torch.autocast("cpu", torch.bfloat16):
        (half,) = to_segment_detections(one, coefficients, prototypes, letterboxes, SIZE)
    (full,) = to_segment_detections(one, coefficients.float(), prototypes.float(), letterboxes, SIZE)
    assert half.masks == full.masks
