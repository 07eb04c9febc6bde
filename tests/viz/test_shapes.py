"""Masks, key points and rotated boxes, pixel by pixel; labels by way of stand-ins written from their description."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import pytest
import torch

from lucid_yolo.data.batch import Batch, Targets
from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.rle import Rle
from lucid_yolo.viz.batches import batch_grid
from lucid_yolo.viz.draw import Pen, draw_boxes, draw_detections
from lucid_yolo.viz.shapes import Shapes, label_shapes
from lucid_yolo.viz.style import class_color
from lucid_yolo.viz.tiles import CAPTION_HEIGHT, GAP
from lucid_yolo.viz.validation import Comparison, comparison_grid

TINTED = [round(0.6 * 128 + 0.4 * c) for c in class_color(0)]


@pytest.fixture
def gray():
    return np.full((200, 300, 3), 128, np.uint8)


@dataclass(frozen=True)
class Rectangles:
    """Outlines of N objects that are rectangles, as labels of masks."""

    field: ClassVar[str] = "masks"

    corners: np.ndarray  # (N, 2, 2)

    def points(self) -> np.ndarray:
        return self.corners.reshape(-1, 2)

    def moved(self, points: np.ndarray, *, mirrored: bool) -> Self:
        assert not mirrored
        return replace(self, corners=points.reshape(-1, 2, 2))

    def target_rows(self, image_size: int) -> np.ndarray:
        masks = np.zeros((len(self.corners), image_size // 4, image_size // 4), bool)
        for mask, corners in zip(masks, self.corners, strict=True):
            (left, top), (right, bottom) = np.rint(corners / 4).astype(int).tolist()
            mask[top:bottom, left:right] = True
        return np.packbits(masks, axis=-1)


@dataclass(frozen=True)
class Points:
    """Labels of key points."""

    field: ClassVar[str] = "keypoints"

    values: np.ndarray  # (N, K, 3)

    def points(self) -> np.ndarray:
        return self.values[..., :2].reshape(-1, 2)

    def moved(self, points: np.ndarray, *, mirrored: bool) -> Self:
        assert not mirrored
        values = self.values.copy()
        values[..., :2] = points.reshape(*values.shape[:2], 2)
        return replace(self, values=values)

    def target_rows(self, image_size: int) -> np.ndarray:
        rows = self.values.astype(np.float32)
        rows[..., 2] = rows[..., 2] > 0
        return rows


def near_color(pixel: np.ndarray) -> bool:
    """Whether a pixel has the color of class 0; lines have soft edges."""
    return bool(np.abs(pixel.astype(int) - class_color(0)).max() <= 20)


def found(**shapes: object) -> Detections:
    box = np.array([[50, 60, 150, 160]], np.float32)
    return Detections(box, np.array([0.9], np.float32), np.array([0]), **shapes)


def half_mask(height: int, width: int) -> Rle:
    """The left half of a picture."""
    mask = np.zeros((height, width), bool)
    mask[:, : width // 2] = True
    return Rle.encode(mask)


@pytest.mark.parametrize("size", [(200, 300), (400, 600), (100, 150)])
def test_mask_is_tinted_and_has_a_contour_whatever_its_own_size(gray, size):
    box = np.array([[200, 20, 280, 40]], float)
    drawn = draw_boxes(gray, box, np.array([0]), [""], shapes=Shapes(masks=(half_mask(*size),)))
    assert drawn[100, 75].tolist() == TINTED
    assert (drawn[50:, 155:] == 128).all()
    assert near_color(drawn[100, 149])
    assert (gray == 128).all()


def test_hole_stays_clear_and_has_a_contour(gray):
    mask = np.zeros((200, 300), bool)
    mask[20:180, 20:280] = True
    mask[60:140, 60:240] = False
    drawn = draw_boxes(gray, np.zeros((1, 4)), np.array([0]), [""], shapes=Shapes(masks=(Rle.encode(mask),)))
    assert drawn[100, 150].tolist() == [128] * 3
    assert drawn[40, 150].tolist() == TINTED
    assert near_color(drawn[59, 150])


def test_mask_without_a_pixel_draws_nothing(gray):
    empty = Shapes(masks=(Rle.encode(np.zeros((200, 300), bool)),))
    drawn = draw_boxes(gray, np.zeros((1, 4)), np.array([0]), [""], shapes=empty)
    assert (drawn[5:, 5:] == 128).all()


def test_points_that_are_likely_are_drawn_and_joined(gray):
    points = np.array([[[70, 80, 0.9], [130, 80, 0.5], [100, 150, 0.49], [np.nan, 10, 0.9]]], np.float32)
    drawn = draw_detections(gray, found(keypoints=points), ("a",), skeleton=((0, 1), (1, 2), (0, 3)))
    assert near_color(drawn[80, 70])
    assert near_color(drawn[80, 130])
    assert near_color(drawn[80, 100])  # the line
    assert drawn[150, 100].tolist() == [128] * 3
    assert drawn[115, 115].tolist() == [128] * 3
    apart = draw_detections(gray, found(keypoints=points), ("a",))
    assert apart[80, 100].tolist() == [128] * 3


def test_points_far_outside_do_not_harm(gray):
    points = np.array([[[1e30, -1e30, 1.0], [100, 100, 1.0]]], np.float32)
    drawn = draw_detections(gray, found(keypoints=points), ("a",), skeleton=((0, 1),))
    assert near_color(drawn[100, 100])


def test_rotated_box_stands_in_the_place_of_the_upright_one(gray):
    """A square of side 80 that stands on a corner reaches 40 sqrt(2) = 56.6 from its centre."""
    reach = 40 * math.sqrt(2)
    box = np.array([[150 - reach, 100 - reach, 150 + reach, 100 + reach]], np.float32)
    rotated = np.array([[150, 100, 80, 80, math.pi / 4]], np.float32)
    one = Detections(box, np.array([0.9], np.float32), np.array([0]), rotated=rotated)
    drawn = draw_boxes(gray, one.boxes, one.classes, [""], shapes=Shapes(rotated=rotated))
    away = np.abs(drawn.astype(int) - class_color(0)).max(axis=2)
    for x, y in ((150, 43), (150, 157), (93, 100), (207, 100), (178, 72), (122, 128)):  # corners, middles of two sides
        assert away[y - 1 : y + 2, x - 1 : x + 2].min() <= 20
    assert drawn[44, 94].tolist() == [128] * 3  # corner of the upright box
    assert drawn[100, 150].tolist() == [128] * 3
    with_text = draw_detections(gray, one, ("a",))
    assert (with_text[25:42, 95:110] == class_color(0)).all(axis=2).any()  # its text is above the upright box


def test_rotated_box_that_is_not_finite_is_skipped(gray):
    shapes = Shapes(rotated=np.array([[150, 100, np.inf, 80, 0.5]]))
    drawn = draw_boxes(gray, np.array([[10, 10, 40, 40]], float), np.array([0]), ["a"], shapes=shapes)
    assert np.array_equal(drawn, gray)


def test_detections_of_a_larger_picture_are_scaled(gray):
    rotated = np.array([[300, 200, 200, 100, 0.0]], np.float32)
    points = np.array([[[200, 300, 1.0]]], np.float32)
    box = np.array([[200, 150, 400, 250]], np.float32)
    one = Detections(box, np.array([0.9], np.float32), np.array([0]), (half_mask(400, 600),), points, rotated)
    drawn = draw_detections(gray, one, ("a",), scale=0.5)
    assert near_color(drawn[150, 100])  # the point
    for y, x in ((75, 150), (125, 150), (100, 200)):  # sides of the box
        assert near_color(drawn[y, x])
    assert drawn[180, 50].tolist() == TINTED
    assert drawn[180, 250].tolist() == [128] * 3


def test_labels_become_shapes_of_the_resized_picture():
    labels = Rectangles(np.array([[[20.0, 40.0], [120.0, 80.0]], [[0.0, 0.0], [400.0, 200.0]]]))
    shapes = label_shapes(labels, width=200, height=100, scale=0.5)
    assert shapes.masks is not None
    first, second = (mask.decode() for mask in shapes.masks)
    expected = np.zeros((100, 200), bool)
    expected[20:40, 10:60] = True
    assert np.array_equal(first, expected)
    assert second.shape == (100, 200)
    assert second.all()
    points = label_shapes(Points(np.array([[[20, 40, 2], [60, 10, 0.0]]])), width=200, height=100, scale=0.5)
    assert points.keypoints is not None
    assert points.keypoints[0, 0].tolist() == [10, 20, 1]
    assert points.keypoints[0, 1, 2] == 0
    assert label_shapes(None, width=20, height=10, scale=1.0) == Shapes()


def comparison(labels: object, detections: Detections) -> Comparison:
    picture = np.full((360, 480, 3), 128, np.uint8)
    return Comparison(
        "a.jpg", picture, np.array([[300, 20, 400, 60]]), np.array([0]), np.array([False]), detections, labels
    )


def test_comparison_shows_the_shapes_of_truth_and_prediction():
    truth = Rectangles(np.array([[[100.0, 100.0], [200.0, 200.0]]]))
    sheet = comparison_grid([comparison(truth, found(masks=(half_mask(360, 480),)))], ("a",), confidence=0.5)
    top, right = GAP + CAPTION_HEIGHT, 2 * GAP + 480
    assert sheet[top + 150, GAP + 150].tolist() == TINTED
    assert sheet[top + 300, GAP + 150].tolist() == [128] * 3
    assert sheet[top + 300, right + 150].tolist() == TINTED
    points = Points(np.array([[[100, 300, 2], [200, 300, 1.0]]]))
    one = comparison(points, found(keypoints=np.array([[[50, 250, 0.9], [90, 250, 0.9]]], np.float32)))
    sheet = comparison_grid([one], ("a",), confidence=0.5, skeleton=((0, 1),))
    assert near_color(sheet[top + 300, GAP + 150])
    assert near_color(sheet[top + 250, right + 70])


def test_batch_shows_the_targets_of_its_task():
    """Two pictures of 320 x 320 with one object each, in rows that are not the first."""
    masks = np.zeros((4, 80, 80), bool)
    masks[2, 10:40, 10:40] = True  # pixels 40 to 160
    targets = Targets(
        image_index=torch.tensor([0, 0, 0, 1]),
        classes=torch.tensor([0, 0, 0, 0]),
        boxes=torch.tensor([[0.0] * 4, [0.0] * 4, [40.0, 40.0, 160.0, 160.0], [10.0, 10.0, 50.0, 50.0]]),
        valid=torch.tensor([False, False, True, True]),
        masks=torch.from_numpy(np.packbits(masks, axis=-1)),
    )
    batch = Batch(torch.full((2, 320, 320, 3), 128, dtype=torch.uint8), targets, torch.ones(2, 3), torch.tensor([0, 1]))
    top, second = GAP + CAPTION_HEIGHT, 2 * GAP + 320
    sheet = batch_grid(batch, ("a",))
    assert sheet[top + 120, GAP + 120].tolist() == TINTED
    assert sheet[top + 200, GAP + 120].tolist() == [128] * 3
    assert sheet[top + 30, second + 40].tolist() == [128] * 3  # its object has an empty mask
    keypoints = torch.zeros(4, 2, 3)
    keypoints[3] = torch.tensor([[100.0, 200.0, 1.0], [200.0, 200.0, 1.0]])
    keypoints[2] = torch.tensor([[100.0, 250.0, 1.0], [200.0, 250.0, 0.0]])
    batch = replace(batch, targets=replace(targets, masks=None, keypoints=keypoints))
    sheet = batch_grid(batch, ("a",), skeleton=((0, 1),))
    assert near_color(sheet[top + 200, second + 150])
    assert near_color(sheet[top + 250, GAP + 100])
    assert sheet[top + 250, GAP + 150].tolist() == [128] * 3
    assert sheet[top + 250, GAP + 200].tolist() == [128] * 3
    rotated = torch.zeros(4, 5)
    rotated[2] = torch.tensor([100.0, 250.0, 100.0, 40.0, math.pi / 2])
    batch = replace(batch, targets=replace(targets, masks=None, rotated=rotated))
    sheet = batch_grid(batch, ("a",))
    side = sheet[top + 250, GAP + 78 : GAP + 83].astype(int)  # a quarter turn: 40 wide, 100 high
    assert np.abs(side - class_color(0)).max(axis=1).min() <= 20
    assert Pen.for_size(320, 320).line == 1
