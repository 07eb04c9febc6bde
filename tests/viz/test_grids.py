"""Grids of pictures."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lucid_yolo.data.batch import Batch, Targets
from lucid_yolo.ops.detections import Detections
from lucid_yolo.viz.batches import batch_grid
from lucid_yolo.viz.style import class_color
from lucid_yolo.viz.tiles import CAPTION_HEIGHT, GAP, fit, grid, tile
from lucid_yolo.viz.validation import Comparison, comparison_grid, spread


def test_fit_keeps_proportions_and_scales_boxes():
    fitted = fit(np.zeros((100, 200, 3), np.uint8), 400, 400)
    assert fitted.picture.shape == (200, 400, 3)
    assert fitted.boxes(np.array([[10, 20, 30, 40]])).tolist() == [[20, 40, 60, 80]]


def test_grid_lays_tiles_out_row_by_row():
    tiles = [tile(np.full((20, 30, 3), value, np.uint8), 40, 20, "name") for value in (10, 20, 30)]
    sheet = grid(tiles, 2)
    height = CAPTION_HEIGHT + 20
    assert sheet.shape == (2 * (height + GAP) + GAP, 2 * (40 + GAP) + GAP, 3)
    middle = CAPTION_HEIGHT + 10
    assert sheet[GAP + middle, GAP + 20].tolist() == [10] * 3
    assert sheet[GAP + middle, 2 * GAP + 40 + 20].tolist() == [20] * 3
    assert sheet[2 * GAP + height + middle, GAP + 20].tolist() == [30] * 3


@pytest.mark.parametrize(
    ("total", "limit", "expected"), [(3, 16, [0, 1, 2]), (100, 3, [0, 50, 99]), (1, 4, [0]), (5, 1, [0])]
)
def test_spread(total, limit, expected):
    assert spread(total, limit) == expected


@pytest.fixture
def batch():
    """Two images of 320 x 320; the second has a box of class 1, in a row that is not the first, and brighter gains."""
    images = torch.full((2, 320, 320, 3), 100, dtype=torch.uint8)
    rows = 4
    targets = Targets(
        image_index=torch.tensor([0, 1, 0, 0]),
        classes=torch.tensor([0, 1, 0, 0]),
        boxes=torch.zeros(rows, 4),
        valid=torch.tensor([False, True, False, False]),
    )
    targets.boxes[1] = torch.tensor([100.0, 120.0, 200.0, 220.0])
    gains = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 1.5]])
    return Batch(images, targets, gains, torch.tensor([5, 7]))


def test_batch_grid_shows_targets_and_colour_gains(batch):
    sheet = batch_grid(batch, ("a", "b"), paths=["x.jpg"] * 8)
    tile_height, tile_width = CAPTION_HEIGHT + 320, 320
    assert sheet.shape == (tile_height + 2 * GAP, 2 * tile_width + 3 * GAP, 3)
    top, second = GAP + CAPTION_HEIGHT, 2 * GAP + tile_width
    assert (sheet[top : top + 320, GAP : GAP + 320] == 100).all()  # padding rows of the targets draw nothing
    assert sheet[top + 120, second + 150].tolist() == list(class_color(1))
    assert sheet[top + 170, second + 150].tolist() == [150] * 3  # value times 1.5
    assert (batch.images == 100).all()


def test_batch_grid_limits_the_images(batch):
    assert batch_grid(batch, ("a", "b"), max_images=1).shape[1] == 320 + 2 * GAP


def test_comparison_has_truth_left_and_prediction_right():
    picture = np.full((360, 480, 3), 100, np.uint8)
    box = np.array([[100, 100, 200, 200]], np.float32)
    found = Detections(box + 200, np.array([0.9], np.float32), np.array([1]))
    one = Comparison("a.jpg", picture, box, np.array([0]), np.array([False]), found)
    sheet = comparison_grid([one], ("a", "b"), confidence=0.3)
    top, right = GAP + CAPTION_HEIGHT, 2 * GAP + 480
    assert sheet[top + 100, GAP + 150].tolist() == list(class_color(0))
    assert sheet[top + 300, GAP + 350].tolist() == [100] * 3
    assert sheet[top + 300, right + 350].tolist() == list(class_color(1))
    assert sheet[top + 100, right + 150].tolist() == [100] * 3
