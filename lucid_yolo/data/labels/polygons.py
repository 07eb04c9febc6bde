"""Outlines of objects: what a segmentation learns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.config.errors import DataError
from lucid_yolo.data.geometry import MIN_SIDE, visible
from lucid_yolo.data.labels.ragged import Offsets, joined_offsets, offsets_of, positions_of
from lucid_yolo.data.labels.runs import Run, Runs
from lucid_yolo.ops.clipping import clipped_envelopes
from lucid_yolo.ops.rasters import fill_rings

MASK_STRIDE = 4
"""Pixels of the canvas a side of a mask's cell."""


@dataclass(frozen=True, slots=True)
class Outline:
    """One object.

    Attributes:
        points: (P, 2) float64 x, y of all rings, one ring after the other.
        lengths: points of each ring, at least one ring.
        holes: whether each ring cuts a hole into what the rings before it cover.
        run: the mask that the outline was made of; None where the file has the outline itself.
    """

    points: NDArray[np.float64]
    lengths: tuple[int, ...]
    holes: tuple[bool, ...]
    run: Run | None = None


@dataclass(frozen=True, slots=True)
class PolygonLabels:
    """Outlines of N objects; see ``Labels`` for what the methods do.

    An object is what is covered when its rings are filled one after the other, and the holes among them cleared: so
    several parts are joined, and islands in holes stay where the ring of an island comes after the hole.

    Attributes:
        xy: (P, 2) float64 points of all rings, in pixels.
        rings: (R + 1,) first point of each ring.
        objects: (N + 1,) first ring of each object, at least one.
        holes: (R,) whether a ring is a hole.
        runs: original masks of the objects that the file gives as masks; none once the labels were moved.
    """

    field: ClassVar[str] = "masks"

    xy: NDArray[np.float64]
    rings: Offsets
    objects: Offsets
    holes: NDArray[np.bool_]
    runs: Runs

    @classmethod
    def of(cls, outlines: Sequence[Outline]) -> Self:
        """Put objects together."""
        return cls(
            np.concatenate([np.zeros((0, 2)), *(one.points for one in outlines)]),
            offsets_of([length for one in outlines for length in one.lengths]),
            offsets_of([len(one.lengths) for one in outlines]),
            np.array([hole for one in outlines for hole in one.holes], np.bool_),
            Runs.of([one.run for one in outlines]),
        )

    def __len__(self) -> int:
        return len(self.objects) - 1

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Pick objects by position."""
        chosen, objects = positions_of(self.objects, rows)
        points, rings = positions_of(self.rings, chosen)
        return type(self)(self.xy[points], rings, objects, self.holes[chosen], self.runs.take(rows))

    def joined(self, others: Sequence[Self]) -> Self:
        """Append the objects of others."""
        parts = [self, *others]
        return type(self)(
            np.concatenate([part.xy for part in parts]),
            joined_offsets([part.rings for part in parts]),
            joined_offsets([part.objects for part in parts]),
            np.concatenate([part.holes for part in parts]),
            self.runs.joined([other.runs for other in others]),
        )

    def points(self) -> NDArray[np.float64]:
        """All points of all rings."""
        return self.xy

    def moved(self, points: NDArray[np.float64], *, mirrored: bool) -> Self:
        """Put other points in their place; an outline has no left and right."""
        return type(self)(points, self.rings, self.objects, self.holes, Runs.none(len(self)))

    def envelopes(self) -> NDArray[np.float64]:
        """(N, 4) xyxy around the outlines."""
        if not len(self):
            return np.zeros((0, 4))
        starts = self.rings[self.objects[:-1]]
        low, high = np.minimum.reduceat(self.xy, starts), np.maximum.reduceat(self.xy, starts)
        return np.concatenate([low, high], axis=1)

    def settle(
        self, boxes: NDArray[np.float64], image_size: int
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], Self]:
        """Boxes around what of the outlines is on the canvas.

        They are tighter than those around the corners of turned boxes and than clipped ones. An outline does not reach
        beyond its box; one that lies elsewhere leaves its box alone.
        """
        tight, fits = _common(boxes, self.envelopes())
        tight = np.where(fits[:, None], tight, boxes)
        clipped, keep = visible(tight, image_size)
        seen, on_canvas = _common(clipped, self._seen(image_size))
        settled = np.where((fits & on_canvas)[:, None], seen, clipped)
        keep &= ((settled[:, 2:] - settled[:, :2]) >= MIN_SIDE).all(axis=1) & (on_canvas | ~fits)
        return settled, keep, self

    def _seen(self, image_size: int) -> NDArray[np.float64]:
        """(N, 4) xyxy around what of the outlines is on the canvas."""
        if not len(self):
            return np.zeros((0, 4))
        rings = clipped_envelopes(self.xy, self.rings, image_size)
        starts = self.objects[:-1]
        low, high = np.minimum.reduceat(rings[:, :2], starts), np.maximum.reduceat(rings[:, 2:], starts)
        return np.concatenate([low, high], axis=1)

    def target_rows(self, image_size: int) -> NDArray[np.uint8]:
        """(N, S/4, S/32) masks, eight cells a byte; a cell is set when its centre is inside, see ``fill_rings``."""
        side = image_size // MASK_STRIDE
        masks = np.zeros((len(self), side, side), np.bool_)
        owner = np.repeat(np.arange(len(self)), np.diff(self.objects)).tolist()
        filled = fill_rings(self.xy / MASK_STRIDE, self.rings, side)
        for row, hole, window in zip(owner, self.holes.tolist(), filled, strict=True):
            height, width = window.inside.shape
            part = masks[row, window.top : window.top + height, window.left : window.left + width]
            if hole:
                part &= ~window.inside
            else:
                part |= window.inside
        return np.packbits(masks, axis=-1)

    def coco_rle(self, row: int, height: int, width: int) -> dict[str, Any]:
        """Mask of an object as its file states it, for labels that were not moved.

        Outlines are filled by pycocotools, so that what is compared with the mask is compared with COCO's own.

        Args:
            row: position of the object.
            height: of its picture, in pixels.
            width: of its picture, in pixels.

        Returns:
            ``size`` and compressed ``counts``, as pycocotools takes them.

        Raises:
            DataError: the file has a mask of a picture of another size.
        """
        from pycocotools import mask  # noqa: PLC0415 - training alone needs none of it

        run = self.runs[row]
        if run is None:
            rings = [self.xy[slice(*self.rings[ring : ring + 2])] for ring in range(*self.objects[row : row + 2])]
            parts = mask.frPyObjects([ring.ravel().tolist() for ring in rings], height, width)
            merged: dict[str, Any] = mask.merge(parts)
            return merged
        if (run.height, run.width) != (height, width):
            raise DataError(
                f"a mask of {run.width}x{run.height} pixels belongs to a picture of {width}x{height}: "
                "masks must have the size of their picture as it is displayed (data.exif_orientation)"
            )
        return {"size": [height, width], "counts": run.counts}


def _common(boxes: NDArray[np.float64], others: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(N, 4) overlap of boxes, xyxy, and (N,) whether there is any."""
    low, high = np.maximum(boxes[:, :2], others[:, :2]), np.minimum(boxes[:, 2:], others[:, 2:])
    overlaps: NDArray[np.bool_] = np.logical_and.reduce(low < high, axis=1)
    return np.concatenate([low, high], axis=1), overlaps
