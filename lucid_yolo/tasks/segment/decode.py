"""From raw predictions to masks of the original pictures.

The logits of a mask are the sum of the prototypes weighted by the coefficients of its anchor (arXiv 1904.02689, section
3.3); the mask is where they are positive (probability above one half) inside of the predicted box.

Logits are interpolated once, bilinearly, from the cells of the prototypes to the pixels of the picture, and compared
with 0 there. Where the picture has the scale of the canvas this is upsampling to the canvas; elsewhere it saves the
second resampling, which would have to be of a finished mask and would give large pictures outlines in steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.letterbox import Letterbox
from lucid_yolo.ops.rle import Rle
from lucid_yolo.tasks.detect.decode import DecodedBoxes, at_anchors, to_kept_rows


@torch.no_grad()
def to_segment_detections(
    decoded: DecodedBoxes,
    coefficients: Tensor,
    prototypes: Tensor,
    letterboxes: Sequence[Letterbox],
    image_size: int,
) -> list[Detections]:
    """Bring detections with their masks to the host and into the frames of the original pictures.

    The maps go to the host as they are and are mixed there, each in the window of its box only: this moves 32 maps an
    image and not one for each detection, and takes no memory beyond one map.

    Args:
        decoded: boxes of a batch, from either branch.
        coefficients: (B, A, 32) of the same branch.
        prototypes: (B, 32, S/4, S/4).
        letterboxes: placement of each picture of the batch.
        image_size: side of the canvas in pixels.
    """
    kept = to_kept_rows(decoded, letterboxes)
    weights = at_anchors(coefficients, decoded.anchors).float().cpu().numpy()
    maps = prototypes.permute(0, 2, 3, 1).float().contiguous().cpu().numpy()
    detections = []
    for image, ((found, rows), letterbox) in enumerate(zip(kept, letterboxes, strict=True)):
        sampler = PictureSampler.of(letterbox, image_size / maps.shape[1], maps.shape[1])
        masks = (
            sampler.mask(maps[image], weights[image, row], box)
            for row, box in zip(rows.tolist(), found.boxes, strict=True)
        )
        detections.append(replace(found, masks=tuple(masks)))
    return detections


@dataclass(frozen=True, slots=True)
class Line:
    """Where the pixels of one axis of a picture lie between the cells of a map.

    Attributes:
        cells: (L,) int64, the cell before the centre of each pixel.
        shares: (L,) float32 0 .. 1, weight of the cell after it.
    """

    cells: NDArray[np.int64]
    shares: NDArray[np.float32]

    @classmethod
    def of(cls, positions: NDArray[np.floating], size: int) -> Self:
        """Place positions, in cells from the map's edge; beyond the outermost centres the outermost cells go on."""
        from_centre = positions - 0.5
        cells = np.floor(from_centre).clip(0, size - 2)
        return cls(cells.astype(np.int64), (from_centre - cells).clip(0, 1).astype(np.float32))


@dataclass(frozen=True, slots=True)
class PictureSampler:
    """Takes maps of the canvas to the pixels of one picture.

    Attributes:
        columns: of the picture.
        rows: of the picture.
    """

    columns: Line
    rows: Line

    @classmethod
    def of(cls, letterbox: Letterbox, stride: float, size: int) -> Self:
        """Place a picture on a map.

        Args:
            letterbox: placement of the picture on the canvas.
            stride: canvas pixels a cell.
            size: cells a side, at least 2.
        """
        along = max(letterbox.width, letterbox.height)
        centres = letterbox.points_to_canvas(np.arange(along)[:, None] + np.array([0.5, 0.5])) / stride
        return cls(Line.of(centres[: letterbox.width, 0], size), Line.of(centres[: letterbox.height, 1], size))

    def mask(self, maps: NDArray[np.float32], weights: NDArray[np.float32], box: NDArray[np.float32]) -> Rle:
        """Mix maps and keep what is positive inside of a box.

        Args:
            maps: (P, P, M) one value a cell and map.
            weights: (M,) of the maps.
            box: (4,) xyxy, pixels of the picture, inside of it; a pixel is inside when its centre is.

        Returns:
            Mask of the picture.
        """
        width, height = len(self.columns.cells), len(self.rows.cells)
        left, top, right, bottom = np.ceil(box - 0.5).astype(np.int64).tolist()
        if left >= right or top >= bottom:
            return Rle.encode_part(np.zeros((0, 0), np.bool_), left=0, top=0, height=height, width=width)
        columns, rows = self.columns.cells[left:right], self.rows.cells[top:bottom]
        across, down = self.columns.shares[left:right, None], self.rows.shares[top:bottom, None]
        window = maps[rows[0] : rows[-1] + 2, columns[0] : columns[-1] + 2] @ weights
        stretched = _between(window, rows - rows[0], down)
        # Column by column, as run lengths are.
        values = _between(np.ascontiguousarray(stretched.T), columns - columns[0], across)
        return Rle.encode_part((values > 0).T, left=left, top=top, height=height, width=width)


def _between(values: NDArray[np.float32], first: NDArray[np.int64], share: NDArray[np.float32]) -> NDArray[np.float32]:
    """Interpolate between a row and the next one: (L, N) from (P, N), (L,) rows and (L, 1) weights of the next."""
    result = values[1:][first]
    result -= values[first]
    result *= share
    result += values[first]
    return result
