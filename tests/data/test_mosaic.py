"""Placement of pictures: a mosaic against pixels looked up one by one on a field of two by two canvases."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from lucid_yolo.data.augment import Placement
from lucid_yolo.data.geometry import blank, paste
from lucid_yolo.data.mosaic import is_seen, tile_matrices

SIZE = 48
SIZES = [(48, 30), (20, 48), (48, 48), (48, 37)]


def placement(**changes) -> Placement:
    values = {
        "images": (0, 1, 2, 3), "meet": (0.9, 1.2), "scale": 1.0, "degrees": 0.0, "shear": (0.0, 0.0),
        "shift": (0.0, 0.0), "flip_lr": False, "flip_ud": False,
    }  # fmt: skip
    return Placement(**(values | changes))


def pictures() -> list[np.ndarray]:
    generator = np.random.default_rng(5)
    return [
        cv2.GaussianBlur(generator.integers(0, 256, (height, width, 3), dtype=np.uint8), (0, 0), 2)
        for width, height in SIZES
    ]


def render(where: Placement) -> np.ndarray:
    canvas = blank(SIZE)
    for picture, matrix in zip(pictures(), tile_matrices(where, SIZES, SIZE), strict=True):
        paste(canvas, picture, matrix)
    return canvas


def slow_mosaic(where: Placement) -> np.ndarray:
    """Every canvas pixel by itself: its position on the field, the picture there, one bilinear look-up in it."""
    result = np.full((SIZE, SIZE, 3), 114.0)
    meet = np.array(where.meet) * SIZE
    angle = np.deg2rad(where.degrees)
    for row in range(SIZE):
        for column in range(SIZE):
            x = SIZE - column - 0.5 if where.flip_lr else column + 0.5
            y = SIZE - row - 0.5 if where.flip_ud else row + 0.5
            offset = (np.array([x, y]) - SIZE / 2 - np.array(where.shift) * SIZE) / where.scale
            turned = [
                offset[0] * np.cos(angle) + offset[1] * np.sin(angle),
                -offset[0] * np.sin(angle) + offset[1] * np.cos(angle),
            ]
            from_meet = np.array(turned) + SIZE - meet
            right, below = from_meet >= 0
            number = int(right) + 2 * int(below)
            picture = pictures_once[number]
            height, width = picture.shape[:2]
            px = from_meet[0] + (0 if right else width)
            py = from_meet[1] + (0 if below else height)
            if 0 <= px < width and 0 <= py < height:
                patch = cv2.getRectSubPix(picture, (1, 1), (px - 0.5, py - 0.5))  # replicates the border
                result[row, column] = patch[0, 0]
    return result


pictures_once = pictures()


@pytest.mark.parametrize(
    "where",
    [
        placement(),
        placement(scale=0.6, shift=(0.08, -0.05)),
        placement(scale=1.4, flip_lr=True, meet=(1.1, 0.8)),
        placement(scale=0.8, flip_ud=True, flip_lr=True, meet=(0.5, 1.5)),
        placement(scale=0.9, degrees=25.0, shift=(0.1, 0.0)),
    ],
    ids=["plain", "zoomed-out", "mirrored", "both-flips", "rotated"],
)
def test_mosaic_equals_a_look_up_of_every_pixel(where):
    canvas, expected = render(where), slow_mosaic(where)
    wrong = (np.abs(canvas - expected) > 4).any(axis=2)
    assert wrong.mean() < 0.005, np.argwhere(wrong)[:5]
    assert (expected != 114).any(axis=2).mean() > 0.4


def test_one_picture_without_augmentation_is_its_letterbox():
    picture = pictures_once[3]  # 48 x 37: an odd rest of padding
    canvas = blank(SIZE)
    paste(canvas, picture, tile_matrices(placement(images=(3,)), [SIZES[3]], SIZE)[0])
    np.testing.assert_array_equal(canvas[5:42], picture)
    assert (canvas[:5] == 114).all()
    assert (canvas[42:] == 114).all()


def test_pictures_outside_the_window_are_not_seen():
    where = placement(scale=1.5, meet=(0.5, 0.5))  # the window shows the lower right quadrant only
    seen = [is_seen(m, size, SIZE) for m, size in zip(tile_matrices(where, SIZES, SIZE), SIZES, strict=True)]
    assert seen == [False, False, False, True]
    for picture, matrix, one in zip(pictures_once, tile_matrices(where, SIZES, SIZE), seen, strict=True):
        canvas = blank(SIZE)
        paste(canvas, picture, matrix)
        assert one == bool((canvas != 114).any())
