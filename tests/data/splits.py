"""Splits that tests build by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from lucid_yolo.config.schema import AugmentConfig, DataConfig
from lucid_yolo.data.index import SplitIndex

PLAIN = {
    "mosaic": 0.0, "close_mosaic": 0, "scale": 0.0, "translate": 0.0, "flip_lr": 0.0,
    "hsv_h": 0.0, "hsv_s": 0.0, "hsv_v": 0.0,
}  # fmt: skip


def make_index(
    sizes: Sequence[tuple[int, int]],
    boxes: Sequence[Sequence[Sequence[float]]],
    *,
    paths: Sequence[str] | None = None,
    crowd: Sequence[bool] | None = None,
) -> SplitIndex:
    """Columns from one list of xyxy boxes an image; the classes count up modulo 3."""
    counts = [len(one) for one in boxes]
    rows = np.array([box for one in boxes for box in one], np.float32).reshape(-1, 4)
    return SplitIndex(
        name="train",
        source="labels.json",
        class_names=("a", "b", "c"),
        category_ids=(1, 2, 3),
        paths=tuple(paths or [f"{i}.png" for i in range(len(sizes))]),
        image_ids=np.arange(len(sizes)),
        sizes=np.array(sizes, np.int32).reshape(-1, 2),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        boxes=rows,
        classes=np.arange(len(rows)) % 3,
        crowd=np.zeros(len(rows), bool) if crowd is None else np.array(crowd),
        areas=np.prod(rows[:, 2:] - rows[:, :2], axis=1),
    )


def write_split(folder: Path, count: int, *, seed: int = 0) -> SplitIndex:
    """Noise pictures of different sizes with a few boxes each, as PNG files."""
    generator = np.random.default_rng(seed)
    sizes, boxes, paths = [], [], []
    for i in range(count):
        width, height = (int(side) for side in generator.integers(40, 90, 2))
        picture = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
        paths.append(str(folder / f"{i:03}.png"))
        assert cv2.imwrite(paths[-1], picture)
        corners = generator.random((i % 4, 2, 2)) * [width / 2, height / 2] + [[0, 0], [width / 2, height / 2]]
        boxes.append(corners.reshape(-1, 4).tolist())
        sizes.append((width, height))
    return make_index(sizes, boxes, paths=paths)


def make_config(*, image_size: int = 64, batch_size: int = 4, **augment: object) -> DataConfig:
    """Small canvas; augmentation as in the defaults unless named."""
    return DataConfig(
        format="coco",
        image_size=image_size,
        batch_size=batch_size,
        augment=AugmentConfig(**augment),  # type: ignore[arg-type]
    )
