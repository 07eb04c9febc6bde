"""The COCO tools called directly on files, and splits written to and read from such files."""

from __future__ import annotations

import contextlib
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.eval.columns import to_xywh
from lucid_yolo.eval.metrics import BoxMetrics
from lucid_yolo.ops.detections import Detections


def evaluate_files(
    truth: Path, found: Path, iou_type: str = "bbox", *, sigmas: Sequence[float] | None = None
) -> np.ndarray:
    """The numbers of the COCO tools, from files: twelve, or ten of key points."""
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(truth))
        evaluator = COCOeval(coco, coco.loadRes(str(found)), iou_type)
        if sigmas is not None:
            evaluator.params.kpt_oks_sigmas = np.array(sigmas)
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    return evaluator.stats


def export_truth(index: SplitIndex, path: Path, further: Sequence[dict[str, Any]] | None = None) -> None:
    """Write a split; ``further`` are more fields of each object."""
    annotations = [
        {
            "id": row + 1,
            "image_id": int(index.image_ids[image]),
            "category_id": index.category_ids[index.classes[row]],
            "bbox": to_xywh(index.boxes[row])[0].tolist(),
            "area": float(index.areas[row]),
            "iscrowd": int(index.crowd[row]),
            **({} if further is None else further[row]),
        }
        for image in range(len(index))
        for row in range(index.offsets[image], index.offsets[image + 1])
    ]
    images = [
        {"id": int(i), "width": int(w), "height": int(h)}
        for i, (w, h) in zip(index.image_ids, index.sizes, strict=True)
    ]
    categories = [{"id": i, "name": name} for i, name in zip(index.category_ids, index.class_names, strict=True)]
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))


def objects_of(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Annotations of a COCO file image by image, without boxes of no size."""
    return [
        annotation
        for image in content["images"]
        for annotation in content["annotations"]
        if annotation["image_id"] == image["id"] and min(annotation["bbox"][2:]) > 0
    ]


def read_coco(path: Path) -> SplitIndex:
    """A split from a COCO file, without boxes of no size; simpler than the project's reader and independent of it."""
    content = json.loads(path.read_text())
    categories = sorted(content["categories"], key=lambda c: c["id"])
    label = {c["id"]: i for i, c in enumerate(categories)}
    images, rows = content["images"], objects_of(content)
    counts = [sum(a["image_id"] == image["id"] for a in rows) for image in images]
    xywh = np.array([a["bbox"] for a in rows], np.float64)
    return SplitIndex(
        name="val",
        source=str(path),
        class_names=tuple(c["name"] for c in categories),
        category_ids=tuple(label),
        paths=tuple(image["file_name"] for image in images),
        image_ids=np.array([image["id"] for image in images]),
        sizes=np.array([(image["width"], image["height"]) for image in images], np.int32),
        offsets=np.cumsum([0, *counts]),
        boxes=np.concatenate([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]], axis=1).astype(np.float32),
        classes=np.array([label[a["category_id"]] for a in rows]),
        crowd=np.array([bool(a.get("iscrowd", 0)) for a in rows]),
        areas=np.array([a["area"] for a in rows], np.float32),
    )


def perfect(index: SplitIndex) -> list[Detections]:
    """One detection on each object that is not a crowd."""
    result = []
    for image in range(len(index)):
        rows = index.rows(image)
        keep = ~index.crowd[rows]
        boxes, classes = index.boxes[rows][keep], index.classes[rows][keep]
        result.append(Detections(boxes, np.full(len(boxes), 0.9, np.float32), classes))
    return result


def numbers(metrics: BoxMetrics) -> list[float]:
    """In the order of the COCO tools, NaN as their -1."""
    names = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large", "ar1", "ar10", "ar100")
    return [-1.0 if math.isnan(getattr(metrics, name)) else getattr(metrics, name) for name in names]
