"""Sizes that are fixed before a run from the labels: how many target rows a batch needs."""

from __future__ import annotations

import numpy as np

from lucid_yolo.config.schema import DataConfig
from lucid_yolo.data.augment import draw_plan
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.sample import learnable, place_objects, seen_tiles

MIN_ROWS = 16
_SAMPLES = 512
_BATCHES = 4000
_SHARE = 0.999


def target_rows(index: SplitIndex, config: DataConfig) -> int:
    """Choose the bucket of target rows that all but one batch in a thousand fit into.

    Draws training samples as a run would (mosaic included, pictures left out), counts their objects, and adds up random
    batches of them. Deterministic.

    Args:
        index: training split.
        config: canvas and batch size, augmentation.

    Returns:
        A power of two, at least `MIN_ROWS`.
    """
    index = learnable(index)
    generator = np.random.default_rng(0)
    images = generator.integers(len(index), size=_SAMPLES).tolist()
    counts = np.array([_count(index, config, image, generator) for image in images])
    batches = generator.choice(counts, (_BATCHES, config.batch_size)).sum(axis=1)
    return next_bucket(int(np.ceil(np.quantile(batches, _SHARE))), MIN_ROWS)


def next_bucket(rows: int, base: int) -> int:
    """Smallest ``base * 2**k`` that holds ``rows``.

    Args:
        rows: objects of a batch.
        base: the usual bucket.
    """
    bucket = base
    while bucket < rows:
        bucket *= 2
    return bucket


def _count(index: SplitIndex, config: DataConfig, image: int, generator: np.random.Generator) -> int:
    """Count the objects of one random sample."""
    plan = draw_plan(generator, image, num_images=len(index), augment=config.augment, closed=False)
    canvases = [seen_tiles(placement, index, config.image_size) for placement in plan.placements]
    return sum(len(place_objects(tiles, index, config.image_size)) for tiles in canvases)
