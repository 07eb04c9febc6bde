"""Pictures of equal size with captions, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from lucid_yolo.viz.draw import FONT, Picture
from lucid_yolo.viz.style import PAPER, shorten

CAPTION_HEIGHT = 26
GAP = 8
_CAPTION_SCALE = 0.45
_CAPTION_COLOR = (34, 48, 60)


@dataclass(frozen=True, slots=True)
class Fit:
    """How a picture was put into a tile: box coordinates times ``scale`` fit the resized picture."""

    picture: Picture
    scale: float

    def boxes(self, boxes: NDArray[np.floating]) -> NDArray[np.float64]:
        """Boxes (N, 4) of the original picture, in pixels of the resized one."""
        return np.asarray(boxes, np.float64).reshape(-1, 4) * self.scale


def fit(picture: Picture, width: int, height: int) -> Fit:
    """Resize a picture to fill a tile as far as its proportions allow."""
    scale = min(width / picture.shape[1], height / picture.shape[0])
    size = (max(1, round(picture.shape[1] * scale)), max(1, round(picture.shape[0] * scale)))
    interpolation = cv2.INTER_AREA if scale < 1 else cv2.INTER_NEAREST if scale >= 3 else cv2.INTER_LINEAR
    resized = cv2.resize(np.ascontiguousarray(picture), size, interpolation=interpolation)
    return Fit(np.asarray(resized, np.uint8), scale)


def tile(picture: Picture, width: int, height: int, caption: str) -> Picture:
    """Put a picture in the middle of a sheet of width x (height + caption), with a caption above."""
    sheet = np.full((height + CAPTION_HEIGHT, width, 3), PAPER, np.uint8)
    y, x = CAPTION_HEIGHT + (height - picture.shape[0]) // 2, (width - picture.shape[1]) // 2
    sheet[y : y + picture.shape[0], x : x + picture.shape[1]] = picture
    cv2.putText(sheet, _fitting(caption, width - 8), (4, 18), FONT, _CAPTION_SCALE, _CAPTION_COLOR, 1, cv2.LINE_AA)
    return sheet


def grid(tiles: Sequence[Picture], columns: int) -> Picture:
    """Lay tiles of one size out row by row with gaps; missing ones at the end stay blank."""
    height, width = tiles[0].shape[:2]
    rows = -(-len(tiles) // columns)
    sheet = np.full((rows * (height + GAP) + GAP, columns * (width + GAP) + GAP, 3), PAPER, np.uint8)
    for i, one in enumerate(tiles):
        y, x = GAP + i // columns * (height + GAP), GAP + i % columns * (width + GAP)
        sheet[y : y + height, x : x + width] = one
    return sheet


def _fitting(text: str, width: int) -> str:
    """Shorten a caption until it fits."""
    limit = len(text)
    while limit > 4 and cv2.getTextSize(shorten(text, limit), FONT, _CAPTION_SCALE, 1)[0][0] > width:
        limit -= 1
    return shorten(text, limit)
