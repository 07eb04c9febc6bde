"""Validation of a trained model through the public functions, against a direct pycocotools call on what it exports."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from pycocotools.mask import iou

import lucid_yolo as ly
from lucid_yolo.config.errors import DataError, RunError

CATEGORIES = {90: "wide", 1: "tall", 7: "never"}  # unsorted, with gaps
FAST = [  # learns in seconds what it is shown
    "model.variant=narrow",
    "model.width=0.125",
    "optimizer=adamw",
    "optimizer.lr=0.004",
    "optimizer.warmup_epochs=1",
    "trainer.val_every=100",
    "trainer.ema.decay=0.9",
    "trainer.ema.ramp=10",
]
COLOURS = {90: (220, 40, 40), 1: (40, 200, 60), 7: (0, 0, 0)}


def write_split(root: Path, split: str, count: int) -> None:
    """Pictures of unequal sides with one bar each, a crowd without a mask, and one background."""
    images, annotations = [], []
    (root / "images" / split).mkdir(parents=True)
    for i in range(count):
        width, height = ((160, 60), (60, 160))[i % 2]
        category = (90, 1)[i % 2]
        pixels = np.full((height, width, 3), 90, np.uint8)
        box = [10 + i, 12, 90, 30] if i % 2 == 0 else [12, 10 + i, 30, 90]
        if i < count - 1:
            x, y, w, h = box
            pixels[y : y + h, x : x + w] = COLOURS[category]
            annotations.append({"id": i + 1, "image_id": 50 + 3 * i, "category_id": category, "bbox": box})
            annotations[-1]["area"] = float(w * h)
        Image.fromarray(pixels).save(root / "images" / split / f"{i}.png")
        images.append({"id": 50 + 3 * i, "file_name": f"{i}.png", "width": width, "height": height})
    crowd = {"counts": [0, width * height], "size": [height, width]}
    annotations.append(
        {
            "id": 99,
            "image_id": 50,
            "category_id": 90,
            "bbox": [0, 40, 160, 20],
            "area": 3200.0,
            "iscrowd": 1,
            "segmentation": crowd,
        }
    )
    categories = [{"id": number, "name": name} for number, name in CATEGORIES.items()]
    (root / "annotations").mkdir(exist_ok=True)
    document = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations" / f"instances_{split}.json").write_text(json.dumps(document))


def overrides(root: Path, run: Path, *changes: str) -> Sequence[str]:
    return [
        "data=coco",
        f"data.root='{root}'",
        f"run_dir='{run}'",
        "data.num_workers=0",
        "trainer.accelerator=cpu",
        "logger.pictures=false",
        "logger.tensorboard=false",
        *changes,
    ]


def by_pycocotools(annotations: Path, predictions: Path) -> tuple[float, float]:
    """AP and AP50 of result records, by the evaluator alone."""
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(annotations))
        for annotation in truth.dataset["annotations"]:
            annotation.setdefault("iscrowd", 0)  # the evaluator wants the key
        evaluator = COCOeval(truth, truth.loadRes(str(predictions)), "bbox")
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    return float(evaluator.stats[0]), float(evaluator.stats[1])


def assert_agrees(out: Path, annotations: Path) -> None:
    metrics = json.loads((out / "report.json").read_text())["metrics"]
    for suffix in ("", "_nms"):
        ap, ap50 = by_pycocotools(annotations, out / f"predictions{suffix}.json")
        assert metrics[f"box_ap{suffix}"] == pytest.approx(ap, abs=1e-6)
        assert metrics[f"box_ap50{suffix}"] == pytest.approx(ap50, abs=1e-6)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A data set with gaps in its ids, and a run on it that has learned something."""
    root = tmp_path_factory.mktemp("bars")
    write_split(root, "train", 9)
    write_split(root, "val", 7)
    kinds = ("mosaic", "close_mosaic", "scale", "translate", "flip_lr", "hsv_h", "hsv_s", "hsv_v")
    plain = [f"data.augment.{kind}=0" for kind in kinds]
    changes = [*FAST, *plain, "data.image_size=64", "data.batch_size=4", "trainer.max_epochs=70", "seed=2"]
    result = ly.train(ly.compose(overrides(root, root.parent / "bars_run", *changes)))
    assert result.status == "finished"
    return root, result.run_dir


def test_scores_equal_pycocotools_on_exported_predictions(trained: tuple[Path, Path], tmp_path: Path) -> None:
    root, run = trained
    report = ly.validate(run, out=str(tmp_path / "out"))
    assert report.metrics["box_ap50"] is not None
    assert report.metrics["box_ap50"] > 0.3  # else equality says little
    assert_agrees(tmp_path / "out", root / "annotations" / "instances_val.json")
    lines = str(report).splitlines()
    assert any(line.strip() == "one_to_one by class" for line in lines)
    for found in report.details["one_to_one"]["classes"]:
        cells = [cell.strip() for line in lines if f" {found['name']} " in line for cell in line.split("│")[2:-1]]
        shown = [
            str(found["objects"]),
            *(f"{found[key]:.4f}" for key in ("precision", "recall", "ap", "ap50") if cells),
        ]
        assert cells == (shown if found["objects"] else [])  # a class without objects has no row
    records = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert {record["image_id"] for record in records} == {50 + 3 * i for i in range(7)}
    assert {record["category_id"] for record in records} <= set(CATEGORIES)


def test_exported_boxes_lie_on_the_objects_of_the_original_pictures(trained: tuple[Path, Path], tmp_path: Path) -> None:
    root, run = trained
    ly.validate(run, split="train", out=str(tmp_path / "out"))
    records = json.loads((tmp_path / "out" / "predictions.json").read_text())
    truth = json.loads((root / "annotations" / "instances_train.json").read_text())["annotations"]
    for annotation in truth[:-1]:  # without the crowd
        found = [r for r in records if r["image_id"] == annotation["image_id"]]
        best = sorted(found, key=lambda record: -record["score"])[:3]
        right = [record["bbox"] for record in best if record["category_id"] == annotation["category_id"]]
        assert iou(right, [annotation["bbox"]], [0]).max() > 0.5


def test_a_test_split_is_scored_where_there_is_one(trained: tuple[Path, Path], tmp_path: Path) -> None:
    root, run = trained
    advice = r"no annotation file for the test split; .*; its splits: train, val; val=FILE of lucid-yolo validate picks"
    with pytest.raises(DataError, match=advice):
        ly.validate(run, split="test")
    named = ly.validate(run, split="test", val="annotations/instances_val.json", val_images="images/val")  # the advice
    assert named.metrics == ly.validate(run).metrics
    write_split(root, "test", 5)
    ly.validate(run, split="test", out=str(tmp_path / "out"))
    assert_agrees(tmp_path / "out", root / "annotations" / "instances_test.json")
    records = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert {record["image_id"] for record in records} == {50 + 3 * i for i in range(5)}


def test_other_classes_are_refused(trained: tuple[Path, Path], tmp_path: Path) -> None:
    root, run = trained
    file = root / "annotations" / "instances_val.json"
    changed = tmp_path / "changed.json"
    changed.write_text(file.read_text().replace("tall", "small"))
    with pytest.raises(RunError, match=r"knows the classes \['tall', .*same classes in the same order"):
        ly.validate(run, val=str(changed), val_images=str(root / "images" / "val"))
