"""Pictures and label files that tests write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def write_picture(path: Path, width: int = 64, height: int = 48, orientation: int | None = None) -> None:
    """Write a gray-scale ramp; the suffix says the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ramp = np.arange(width * height * 3, dtype=np.uint32).reshape(height, width, 3) % 251
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    Image.fromarray(ramp.astype(np.uint8)).save(path, exif=exif)


def coco_document(
    images: Sequence[str], annotations: Sequence[Mapping[str, Any]], categories: Mapping[int, str]
) -> dict[str, Any]:
    """COCO JSON of 64x48 pictures with ids 1, 2, ...; annotations get ids 100, 101, ... unless they have one."""
    return {
        "images": [{"id": i, "file_name": name, "width": 64, "height": 48} for i, name in enumerate(images, 1)],
        "annotations": [{"id": 100 + i, "iscrowd": 0, **a} for i, a in enumerate(annotations)],
        "categories": [{"id": i, "name": name} for i, name in categories.items()],
    }
