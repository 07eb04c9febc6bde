"""The embedded set on disk: drawn once into the user's cache directory as JPEG files and COCO JSON.

A folder is published by one rename, so it is whole or absent, also when two processes draw at once; its name carries
the version of the drawing and all parameters, so another set is another folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from lucid_yolo.config.child import child_environment
from lucid_yolo.config.errors import DataError
from lucid_yolo.config.paths import CACHE_VARIABLE, cache_directory
from lucid_yolo.data.shapes.geometry import CLASS_NAMES, KEYPOINT_NAMES, KEYPOINT_SKELETON, Shape
from lucid_yolo.data.shapes.scene import Scene, draw_scene

_VERSION = 3  # raise it whenever a picture or a label changes
_JPEG_QUALITY = 95  # decoding costs a fifth of PNG, which two cores feel at every step
_SPLITS = ("train", "val")
_PIXELS_A_PROCESS = 10_000_000  # of a set that several processes draw
_MOST_PROCESSES = 6


@dataclass(frozen=True, slots=True)
class ShapesSpec:
    """What the embedded set consists of.

    Attributes:
        num_train: pictures of the training split.
        num_val: pictures of the validation split.
        image_size: side of the pictures in pixels, their width where a height is given.
        image_height: of pictures that are not square; 0: they are.
        max_objects: a picture has one to so many objects.
        seed: another seed draws other pictures.
    """

    num_train: int = 512
    num_val: int = 128
    image_size: int = 160
    image_height: int = 0
    max_objects: int = 5
    seed: int = 0

    @property
    def height(self) -> int:
        """Height of the pictures in pixels."""
        return self.image_height or self.image_size

    @property
    def folder_name(self) -> str:
        """Name of the set's folder: version of the drawing and a hash of the parameters."""
        text = json.dumps(asdict(self), sort_keys=True)
        return f"shapes-v{_VERSION}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def count(self, split: str) -> int:
        """Number of pictures of a split."""
        return self.num_train if split == "train" else self.num_val


def annotation_file(folder: Path, split: str) -> Path:
    """The COCO JSON of a split."""
    return folder / "annotations" / f"instances_{split}.json"


def image_folder(folder: Path, split: str) -> Path:
    """The pictures of a split."""
    return folder / "images" / split


def ensure_shapes(spec: ShapesSpec) -> Path:
    """Return the folder of a set, drawn now if it is not there or not whole.

    Raises:
        DataError: the cache directory cannot be written.
    """
    cache = cache_directory()
    folder = cache / spec.folder_name
    if _is_whole(folder, spec):
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{spec.folder_name}-", dir=cache))
        try:
            for split in _SPLITS:
                _write_split(draft, split, spec)
            _publish(draft, folder, spec)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise DataError(
            f"the embedded data set cannot be written to {cache}: {(error.strerror or str(error)).lower()}; "
            f"set the environment variable {CACHE_VARIABLE} to a folder that can be written"
        ) from None
    return folder


def _is_whole(folder: Path, spec: ShapesSpec) -> bool:
    for split in _SPLITS:
        images = image_folder(folder, split)
        if not annotation_file(folder, split).is_file() or not images.is_dir():
            return False
        if len(os.listdir(images)) != spec.count(split):
            return False
    return True


def _publish(draft: Path, folder: Path, spec: ShapesSpec) -> None:
    """Give a finished draft its name; another process may have been faster, and a damaged folder makes way."""
    try:
        draft.rename(folder)
    except OSError:
        if _is_whole(folder, spec):
            return
        if not folder.exists():
            raise
        shutil.rmtree(folder)
        draft.rename(folder)


def _write_split(root: Path, split: str, spec: ShapesSpec) -> None:
    image_folder(root, split).mkdir(parents=True)
    processes = _processes(spec.count(split) * spec.image_size * spec.height)
    if processes == 1:
        per_image = draw_pictures(root, split, spec, range(spec.count(split)))
    else:
        per_image = _draw_in_processes(root, split, spec, processes)
    path = annotation_file(root, split)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(_document(per_image, split, spec)), encoding="utf-8")


def draw_pictures(root: Path, split: str, spec: ShapesSpec, indices: Iterable[int]) -> list[list[dict[str, Any]]]:
    """Draw pictures of a split into its folder.

    Returns:
        COCO annotations by picture, without ids.
    """
    images, number = image_folder(root, split), _SPLITS.index(split)

    def work(index: int) -> list[dict[str, Any]]:
        scene = draw_scene(
            (spec.seed, number, index), size=spec.image_size, height=spec.height, max_objects=spec.max_objects
        )
        _write_image(images / _file_name(index), scene)
        return [_annotation(shape, seen) for shape, seen in zip(scene.shapes, scene.visible, strict=True)]

    return [work(index) for index in indices]  # many small array operations: threads are slower


def _processes(pixels: int) -> int:
    """How many processes draw; to start one takes as long as to draw a few million pixels."""
    return max(1, min(_MOST_PROCESSES, pixels // _PIXELS_A_PROCESS))


def _draw_in_processes(root: Path, split: str, spec: ShapesSpec, count: int) -> list[list[dict[str, Any]]]:
    """Let every process draw each ``count``-th picture.

    Raises:
        DataError: one of them failed.
    """
    per_image: list[list[dict[str, Any]]] = [[] for _ in range(spec.count(split))]
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(scratch) / f"{first}.json" for first in range(count)]
        command = [sys.executable, "-m", f"{__package__}.part", str(root), split, json.dumps(asdict(spec))]
        children = [
            subprocess.Popen(
                [*command, str(first), str(count), str(file)], env=child_environment(), stdin=subprocess.DEVNULL
            )
            for first, file in enumerate(files)
        ]
        codes = [child.wait() for child in children]
        if any(codes):
            raise DataError(f"drawing the embedded data set failed with exit codes {codes}; what it said stands above")
        for first, file in enumerate(files):
            per_image[first::count] = json.loads(file.read_text(encoding="utf-8"))
    return per_image


def _file_name(index: int) -> str:
    return f"{index:06d}.jpg"


def _write_image(path: Path, scene: Scene) -> None:
    bgr = cv2.cvtColor(scene.image, cv2.COLOR_RGB2BGR)
    _, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    path.write_bytes(data.tobytes())


def _document(per_image: Sequence[list[dict[str, Any]]], split: str, spec: ShapesSpec) -> dict[str, Any]:
    """COCO JSON of a split, with segmentation, key points and, as an extra key, the corners of oriented boxes."""
    size = {"width": spec.image_size, "height": spec.height}
    images = [{"id": i + 1, "file_name": _file_name(i), **size} for i in range(len(per_image))]
    annotations: list[dict[str, Any]] = []
    for i, objects in enumerate(per_image):
        for labels in objects:
            annotations.append({"id": len(annotations) + 1, "image_id": i + 1, **labels})
    categories = [
        {"id": i + 1, "name": name, "keypoints": KEYPOINT_NAMES, "skeleton": KEYPOINT_SKELETON}
        for i, name in enumerate(CLASS_NAMES)
    ]
    info = {"description": f"embedded shapes, {split}", "version": str(_VERSION)}
    return {"info": info, "images": images, "annotations": annotations, "categories": categories}


def _annotation(shape: Shape, seen: np.ndarray[Any, np.dtype[np.bool_]]) -> dict[str, Any]:
    x1, y1, x2, y2 = shape.box
    points = [[x, y, 2 if visible else 1] for (x, y), visible in zip(shape.keypoints.tolist(), seen, strict=True)]
    return {
        "category_id": shape.label + 1,
        "bbox": [x1, y1, round(x2 - x1, 2), round(y2 - y1, 2)],
        "area": round(shape.area, 2),
        "iscrowd": 0,
        "segmentation": [shape.outline.ravel().tolist()],
        "keypoints": [value for point in points for value in point],
        "num_keypoints": len(points),
        "corners": shape.corners.ravel().tolist(),
    }
