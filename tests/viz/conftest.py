"""A small split on disk."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from lucid_yolo.data.index import SplitIndex


@pytest.fixture
def index(tmp_path: Path) -> SplitIndex:
    """Three pictures of 160 x 120: two objects of two classes and a crowd, nothing, and a file that is no picture."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name in ("a.png", "b.png"):
        assert cv2.imwrite(str(folder / name), np.full((120, 160, 3), 200, np.uint8))
    (folder / "c.png").write_bytes(b"no picture")
    boxes = np.array([[10, 20, 60, 80], [90, 40, 130, 100], [0, 0, 40, 10], [5, 5, 105, 55]], np.float32)
    return SplitIndex(
        name="val",
        source=str(folder),
        class_names=("round cell", "a class with a name that does not fit anywhere", "unused"),
        category_ids=(1, 2, 3),
        paths=tuple(str(folder / name) for name in ("a.png", "b.png", "c.png")),
        image_ids=np.arange(3),
        sizes=np.array([[160, 120]] * 3, np.int32),
        offsets=np.array([0, 3, 3, 4]),
        boxes=boxes,
        classes=np.array([0, 1, 0, 1]),
        crowd=np.array([False, False, True, False]),
        areas=(boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]),
    )
