"""One training sample: from a plan to pixels and boxes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from lucid_yolo.data.augment import Placement, SamplePlan
from lucid_yolo.data.colour import ColourStage
from lucid_yolo.data.geometry import Matrix, blank, boxes_to_points, paste, scaled_first, visible
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import Labels, empty_of
from lucid_yolo.data.mosaic import is_seen, tile_matrices
from lucid_yolo.data.objects import Objects
from lucid_yolo.data.source import Pictures, SharedPictures
from lucid_yolo.data.transforms import Transforms
from lucid_yolo.ops.letterbox import scaled_size


@dataclass(slots=True)
class Sample:
    """One training sample.

    Attributes:
        image: (S, S, 3) uint8 RGB.
        objects: what is to be found on it.
        gains: (3,) float32 colour gains that are still to be applied; ones where nothing is left to do.
        index: position of its image in the split.
        problems: one sentence for each file that could not be used.
    """

    image: NDArray[np.uint8]
    objects: Objects
    gains: NDArray[np.float32]
    index: int
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tile:
    """One picture that is seen on a canvas.

    Attributes:
        image: position in the split.
        matrix: its pixels at training resolution to canvas pixels.
    """

    image: int
    matrix: Matrix


def seen_tiles(placement: Placement, index: SplitIndex, image_size: int) -> list[Tile]:
    """Place the pictures of a canvas and leave out those that the window misses: they need no decoding."""
    sizes = [scaled_size(width, height, image_size) for width, height in index.sizes[list(placement.images)].tolist()]
    matrices = tile_matrices(placement, sizes, image_size)
    return [
        Tile(image, matrix)
        for image, matrix, size in zip(placement.images, matrices, sizes, strict=True)
        if is_seen(matrix, size, image_size)
    ]


def place_objects(tiles: list[Tile], index: SplitIndex, image_size: int) -> Objects:
    """Carry the objects of the pictures to the canvas and keep those still worth learning.

    Args:
        tiles: pictures of the canvas.
        index: their labels, see `learnable`.
        image_size: side of the canvas.
    """
    boxes, classes = [np.zeros((0, 4))], [np.zeros(0, np.int64)]
    labels = [] if index.labels is None else [empty_of(index.labels)]
    for tile in tiles:
        rows = index.rows(tile.image)
        width, height = index.sizes[tile.image].tolist()
        scaled_width, scaled_height = scaled_size(width, height, image_size)
        from_original = scaled_first(tile.matrix, scaled_width / width, scaled_height / height)
        boxes.append(boxes_to_points(index.boxes[rows]).warped(from_original).envelopes())
        classes.append(index.classes[rows])
        if index.labels is not None:
            labels.append(_carried(index.labels.take(np.arange(rows.start, rows.stop)), from_original))
    envelopes = np.concatenate(boxes)
    if not labels:
        settled, keep = visible(envelopes, image_size)
        return Objects(settled[keep].astype(np.float32), np.concatenate(classes)[keep])
    settled, keep, there = labels[0].joined(labels[1:]).settle(envelopes, image_size)
    return Objects(settled[keep].astype(np.float32), np.concatenate(classes)[keep], there.take(np.flatnonzero(keep)))


def _carried(labels: Labels, matrix: Matrix) -> Labels:
    """Labels of a picture on the canvas."""
    mirrored = bool(np.linalg.det(matrix[:, :2]) < 0)
    return labels.moved(labels.points() @ matrix[:, :2].T + matrix[:, 2], mirrored=mirrored)


def learnable(index: SplitIndex) -> SplitIndex:
    """Leave out crowds: they are never positives."""
    keep = ~index.crowd
    before = np.concatenate([[0], np.cumsum(keep)])
    return replace(
        index,
        offsets=before[index.offsets],
        labels=None if index.labels is None else index.labels.take(np.flatnonzero(keep)),
        **{name: getattr(index, name)[keep] for name in ("boxes", "classes", "crowd", "areas")},
    )


class Renderer:
    """Turns plans into samples.

    Args:
        index: the split, see `learnable`.
        image_size: side of the canvas.
        transforms: further transforms that the configuration lists.
        colour: the last stage, see `ColourStage`.
    """

    def __init__(self, index: SplitIndex, image_size: int, transforms: Transforms, colour: ColourStage) -> None:
        self._index = index
        self._image_size = image_size
        self._transforms = transforms
        self._colour = colour

    def __call__(self, plans: list[SamplePlan], source: Pictures) -> list[Sample]:
        """Render the samples of a batch; a picture that several of them use is read once.

        Raises:
            DataError: a file cannot be used and the configuration says to stop.
        """
        tiles = [[seen_tiles(p, self._index, self._image_size) for p in plan.placements] for plan in plans]
        pictures = SharedPictures(source, (tile.image for canvases in tiles for canvas in canvases for tile in canvas))
        return [self._sample(plan, canvases, pictures) for plan, canvases in zip(plans, tiles, strict=True)]

    def _sample(self, plan: SamplePlan, canvases: list[list[Tile]], pictures: SharedPictures) -> Sample:
        problems: list[str] = []
        image, objects = self._canvas(canvases[0], pictures, problems)
        for tiles in canvases[1:]:
            other, others = self._canvas(tiles, pictures, problems)
            cv2.addWeighted(image, plan.share, other, 1 - plan.share, 0, dst=image)
            objects = objects.joined(others)
        image, objects = self._transforms(image, objects, seed=plan.transforms_seed)
        return Sample(
            image=image,
            objects=objects,
            gains=self._colour(image, plan.gains),
            index=plan.placements[0].images[0],
            problems=tuple(problems),
        )

    def _canvas(
        self, tiles: list[Tile], pictures: SharedPictures, problems: list[str]
    ) -> tuple[NDArray[np.uint8], Objects]:
        canvas = blank(self._image_size)
        readable = []
        for tile in tiles:
            picture = pictures(tile.image)
            paste(canvas, picture.pixels, tile.matrix)
            if picture.problem is None:
                readable.append(tile)
            else:
                problems.append(picture.problem)
        return canvas, place_objects(readable, self._index, self._image_size)
