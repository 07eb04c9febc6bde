"""The letterbox: how a picture of any size lies on the square training canvas, and the way back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PAD_VALUE = 114
"""Gray level of canvas that no picture covers."""


def scaled_size(width: int, height: int, image_size: int) -> tuple[int, int]:
    """Width and height of a picture scaled so that its longer side is ``image_size``; small pictures are enlarged.

    Args:
        width: pixels, at least 1.
        height: pixels, at least 1.
        image_size: side of the canvas in pixels.

    Returns:
        (width, height) in whole pixels, each at least 1.
    """
    scale = min(image_size / width, image_size / height)
    return max(1, round(width * scale)), max(1, round(height * scale))


@dataclass(frozen=True, slots=True)
class Letterbox:
    """Placement of one picture on a square canvas.

    Attributes:
        scale: canvas pixels a picture pixel, before the scaled size is rounded to whole pixels.
        pad_x: canvas pixels left of the picture.
        pad_y: canvas pixels above the picture.
        width: of the original picture, pixels.
        height: of the original picture, pixels.
    """

    scale: float
    pad_x: float
    pad_y: float
    width: int
    height: int

    @property
    def scaled_width(self) -> int:
        """Width of the picture on the canvas, whole pixels."""
        return max(1, round(self.width * self.scale))

    @property
    def scaled_height(self) -> int:
        """Height of the picture on the canvas, whole pixels."""
        return max(1, round(self.height * self.scale))

    def boxes_to_canvas(self, boxes: NDArray[np.floating]) -> NDArray[np.float32]:
        """Map boxes of the picture onto the canvas.

        Args:
            boxes: (N, 4) xyxy, pixels of the original picture.

        Returns:
            (N, 4) float32 xyxy, canvas pixels. Rounding of the scaled size is in it, so boxes lie where the pixels do.
        """
        factors, pads = self._factors()
        mapped: NDArray[np.float32] = (boxes * factors + pads).astype(np.float32)
        return mapped

    def boxes_to_picture(self, boxes: NDArray[np.floating]) -> NDArray[np.float32]:
        """Map boxes of the canvas back to the picture, without clipping: the inverse of `boxes_to_canvas`.

        Args:
            boxes: (N, 4) xyxy, canvas pixels.

        Returns:
            (N, 4) float32 xyxy, pixels of the original picture.
        """
        factors, pads = self._factors()
        mapped: NDArray[np.float32] = ((boxes - pads) / factors).astype(np.float32)
        return mapped

    def points_to_canvas(self, points: NDArray[np.floating]) -> NDArray[np.float64]:
        """Map points of the picture onto the canvas.

        Args:
            points: (..., 2) x, y, pixels of the original picture.

        Returns:
            (..., 2) float64 x, y, canvas pixels.
        """
        factors, pads = self._factors()
        return np.asarray(points * factors[:2] + pads[:2], np.float64)

    def points_to_picture(self, points: NDArray[np.floating]) -> NDArray[np.float32]:
        """Map points of the canvas back to the picture: the inverse of `points_to_canvas`.

        Args:
            points: (..., 2) x, y, canvas pixels.

        Returns:
            (..., 2) float32 x, y, pixels of the original picture.
        """
        factors, pads = self._factors()
        mapped: NDArray[np.float32] = ((points - pads[:2]) / factors[:2]).astype(np.float32)
        return mapped

    def _factors(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        factor_x, factor_y = self.scaled_width / self.width, self.scaled_height / self.height
        pads = np.array([self.pad_x, self.pad_y, self.pad_x, self.pad_y])
        return np.array([factor_x, factor_y, factor_x, factor_y]), pads


def letterbox_for(width: int, height: int, image_size: int) -> Letterbox:
    """Centre a picture on the canvas; an odd rest of padding goes right and below.

    Args:
        width: of the picture, pixels, at least 1.
        height: of the picture, pixels, at least 1.
        image_size: side of the canvas in pixels.
    """
    scaled_width, scaled_height = scaled_size(width, height, image_size)
    return Letterbox(
        scale=min(image_size / width, image_size / height),
        pad_x=float((image_size - scaled_width) // 2),
        pad_y=float((image_size - scaled_height) // 2),
        width=width,
        height=height,
    )
