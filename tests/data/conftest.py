"""Small data sets on disk, written by the tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.data.disk import coco_document, write_picture


@pytest.fixture
def coco_set(tmp_path: Path) -> Callable[..., Path]:
    """Write a COCO data set whose two splits have the same labels; returns its root."""

    def write(
        annotations: Sequence[Mapping[str, Any]] | None = None,
        *,
        images: Sequence[str] = ("a.jpg", "b.jpg"),
        categories: Mapping[int, str] | None = None,
        change: Callable[[dict[str, Any]], None] | None = None,
    ) -> Path:
        if annotations is None:
            annotations = [{"image_id": 1, "category_id": 1, "bbox": [4, 5, 20, 10], "area": 150}]
        root = tmp_path / "set"
        for split in ("train", "val"):
            document = coco_document(images, annotations, categories or {1: "cat", 3: "dog"})
            if change is not None:
                change(document)
            file = root / "annotations" / f"instances_{split}2017.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(document))
            for name in images:
                write_picture(root / f"{split}2017" / name)
        return root

    return write


@pytest.fixture
def yolo_set(tmp_path: Path) -> Callable[..., Path]:
    """Write a YOLO data set of two 64x48 pictures a split with the same label text; returns its root."""

    def write(a: str | None = "0 0.5 0.5 0.25 0.5\n", b: str | None = "", *, yaml: str | None = None) -> Path:
        root = tmp_path / "set"
        for split in ("train", "val"):
            for name, text in (("a", a), ("b", b)):
                write_picture(root / "images" / split / f"{name}.jpg")
                label = root / "labels" / split / f"{name}.txt"
                label.parent.mkdir(parents=True, exist_ok=True)
                if text is not None:
                    label.write_text(text)
        default = "path: .\ntrain: images/train\nval: images/val\nnc: 2\nnames: [cat, dog]\n"
        (root / "data.yaml").write_text(default if yaml is None else yaml)
        return root

    return write
