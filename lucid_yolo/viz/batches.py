"""What the network is shown: a training batch with its targets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import PurePath

from lucid_yolo.data.batch import Batch
from lucid_yolo.ops.colour import ColourTransform
from lucid_yolo.viz.draw import Picture, Skeleton, draw_objects
from lucid_yolo.viz.shapes import target_shapes
from lucid_yolo.viz.style import count
from lucid_yolo.viz.tiles import fit, grid, tile

_TILE_SIDES = (320, 480)


def batch_grid(
    batch: Batch,
    class_names: Sequence[str],
    *,
    paths: Sequence[str] = (),
    skeleton: Skeleton = (),
    max_images: int = 16,
) -> Picture:
    """Draw the first images of a batch as the network sees them, colour gains applied, with their targets.

    Args:
        batch: a batch on the host.
        class_names: one name a class.
        paths: files of the split, for captions (a mosaic is named after its first image).
        skeleton: pairs of key points that a line joins.
        max_images: images at most.

    Returns:
        (H, W, 3) uint8 RGB.
    """
    images, gains = batch.images[:max_images].numpy(), batch.gains[:max_images].numpy()
    valid, owner = batch.targets.valid.numpy(), batch.targets.image_index.numpy()
    boxes, classes = batch.targets.boxes.numpy(), batch.targets.classes.numpy()
    side = min(max(images.shape[1], _TILE_SIDES[0]), _TILE_SIDES[1])
    colour = ColourTransform()
    tiles = []
    for i, (image, gain) in enumerate(zip(images, gains, strict=True)):
        mine = valid & (owner == i)
        fitted = fit(colour(image.copy(), gain), side, side)
        drawn = draw_objects(
            fitted.picture,
            fitted.boxes(boxes[mine]),
            classes[mine],
            class_names,
            shapes=target_shapes(batch.targets, mine).scaled(fitted.scale),
            skeleton=skeleton,
        )
        position = int(batch.indices[i])
        name = PurePath(paths[position]).name if 0 <= position < len(paths) else f"image {position}"
        tiles.append(tile(drawn, side, side, f"{name}, {count(int(mine.sum()), 'object')}"))
    return grid(tiles, math.ceil(math.sqrt(len(tiles))))
