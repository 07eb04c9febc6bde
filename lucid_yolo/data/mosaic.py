"""Where the pictures of a placement lie on the training canvas.

Mosaic: four pictures meet in one point of a field of two by two canvases, each in its quadrant, and the canvas is a
window onto the field. Field, scale, rotation, shift and flips are one matrix a picture, so that each pixel is
interpolated once, and nothing is computed outside the window.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lucid_yolo.data.augment import Placement
from lucid_yolo.data.geometry import Matrix, linear_part, moved_first, picture_envelope


def tile_matrices(placement: Placement, sizes: Sequence[tuple[int, int]], image_size: int) -> list[Matrix]:
    """Place pictures on the canvas.

    Args:
        placement: one or four images.
        sizes: (width, height) of each picture at training resolution.
        image_size: side of the canvas.

    Returns:
        For each picture the matrix from its pixels to the canvas.
    """
    window = _window(placement, image_size)
    return [moved_first(window, *corner) for corner in _corners(placement, sizes, image_size)]


def is_seen(matrix: Matrix, size: tuple[int, int], image_size: int) -> bool:
    """Whether the upright envelope of a placed picture reaches into the canvas."""
    left, top, right, bottom = picture_envelope(matrix, *size)
    return right > 0 and bottom > 0 and left < image_size and top < image_size


def _corners(placement: Placement, sizes: Sequence[tuple[int, int]], image_size: int) -> list[tuple[float, float]]:
    """Upper left corner of each picture, relative to the middle of the window."""
    if len(sizes) == 1:
        # As the letterbox places it, so that a sample without augmentation is an exact copy.
        x, y = ((image_size - side) // 2 - image_size / 2 for side in sizes[0])
        return [(x, y)]
    x, y = ((position - 1) * image_size for position in placement.meet)
    (width0, height0), (_, height1), (width2, _), _ = sizes
    return [(x - width0, y - height0), (x, y - height1), (x - width2, y), (x, y)]


def _window(placement: Placement, image_size: int) -> Matrix:
    """Matrix from positions relative to the middle of the window to the canvas."""
    flip = np.diag([-1.0 if placement.flip_lr else 1.0, -1.0 if placement.flip_ud else 1.0])
    linear = linear_part(
        degrees=placement.degrees, scale=placement.scale, shear_x=placement.shear[0], shear_y=placement.shear[1]
    )
    shift = np.array(placement.shift) * image_size
    return np.column_stack([flip @ linear, flip @ shift + image_size / 2])
