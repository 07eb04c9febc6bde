"""The loader's benchmark: what it reports, not how fast this machine is."""

from __future__ import annotations

import json
from dataclasses import replace

import cv2
import numpy as np
import pytest

from lucid_yolo.bench.loader import LoaderCost, as_record, main, measure, render
from lucid_yolo.config.schema import CacheConfig, CacheName, CachePlace, HsvName
from lucid_yolo.data import source
from lucid_yolo.data.image import read_image
from lucid_yolo.ops.colour import ColourTransform
from tests.data.disk import coco_document, write_picture
from tests.data.splits import make_config, write_split


def test_a_small_split_is_measured(tmp_path):
    threads = cv2.getNumThreads()
    cost = measure(write_split(tmp_path, 6), make_config(image_size=64, batch_size=4), samples=8)
    cv2.setNumThreads(threads)
    assert (cost.images, cost.samples, cost.batch_size, cost.image_size) == (6, 8, 4, 64)
    assert cost.colour_ms > 0
    assert 0 < cost.decode_ms < cost.sample_ms


@pytest.mark.parametrize("kind", [CacheName.DECODED, CacheName.PREPARED])
def test_a_cached_sample_is_measured_without_the_files(tmp_path, monkeypatch, kind):
    monkeypatch.setenv("LUCID_YOLO_CACHE", str(tmp_path / "cache"))
    threads = cv2.getNumThreads()
    reads: list[str] = []
    monkeypatch.setattr(source, "read_image", lambda path, **rule: reads.append(path) or read_image(path, **rule))
    index, cache = write_split(tmp_path, 6), CacheConfig(selected=kind, place=CachePlace.DISK)
    cost = measure(index, make_config(image_size=64, batch_size=4), cache, samples=8)
    cv2.setNumThreads(threads)
    assert sorted(reads) == list(index.paths)  # each one once, to make the cache
    assert (cost.cache, as_record(cost)["cache"]) == (kind, kind)


def test_colours_that_are_left_to_the_device_are_no_part_of_a_sample(tmp_path, monkeypatch):
    threads = cv2.getNumThreads()
    calls: list[int] = []
    monkeypatch.setattr(ColourTransform, "__call__", lambda _, image, gains: calls.append(1))
    index, config = write_split(tmp_path, 6), make_config(image_size=64, batch_size=4)
    counts = {}
    for hsv in (HsvName.WORKER, HsvName.DEVICE, HsvName.DEVICE_NATIVE):
        calls.clear()
        cost = measure(index, config, hsv=hsv, samples=8)
        assert (cost.hsv, as_record(cost)["hsv"]) == (hsv, hsv)
        counts[hsv] = len(calls)
    cv2.setNumThreads(threads)
    # Timed alone 8 times; in 8 samples, in the 8 whose picture is timed alone, and in two batches of 4.
    assert counts == {HsvName.WORKER: 8 + 8 + 8 + 2 * 4, HsvName.DEVICE: 8, HsvName.DEVICE_NATIVE: 8}


def test_ratios_and_record_by_hand():
    cost = LoaderCost(2.0, 15.0, 9.0, 3.0, image_size=640, batch_size=16, images=24, samples=120)
    record = json.loads(json.dumps(as_record(cost)))
    assert (record["decodes_a_sample"], record["decodes_a_batch_sample"]) == (7.5, 4.5)
    assert record["decode_ms"] == 2.0
    assert list(render(cost).columns[2].cells) == ["1.00", "7.50", "4.50", "1.50"]
    assert list(render(cost).columns[0].cells)[-1] == "colour transform (part of it)"
    device = replace(cost, hsv="device")
    assert list(render(device).columns[0].cells)[-1] == "colour transform (left to the device)"


def test_the_command_prints_a_table_and_writes_a_record(tmp_path, capsys):
    for split in ("train", "val"):
        names = ["a.jpg", "b.jpg"]
        for name in names:
            write_picture(tmp_path / f"{split}2017" / name)
        annotations = [{"image_id": 1, "category_id": 1, "bbox": [4, 5, 20, 10], "area": 150}]
        document = coco_document(names, annotations, {1: "cat"})
        (tmp_path / "annotations").mkdir(exist_ok=True)
        (tmp_path / "annotations" / f"instances_{split}2017.json").write_text(json.dumps(document))
    record = tmp_path / "record.json"
    arguments = ["data=coco", f"data.root={tmp_path}", "data.image_size=64", "data.batch_size=4", "--out", str(record)]
    assert main([*arguments, "cache=decoded", "hsv=device"]) == 0
    written = json.loads(record.read_text())
    assert written["images"] == 2
    assert written["versions"]["numpy"] == np.__version__
    assert written["command"].startswith("python -m lucid_yolo.bench.loader data=coco")
    assert (written["cache"], written["hsv"]) == ("decoded", "device")
    printed = capsys.readouterr().out
    assert "decode one image" in printed
    assert "cache=decoded: 0.0 MiB" in printed


def test_a_wrong_key_is_one_message(capsys):
    assert main(["data.imagesize=64"]) == 2
    assert "image_size" in capsys.readouterr().err


def test_labels_are_read_as_a_run_reads_them(capsys):
    few = [f"data.options.{key}" for key in ("num_train=1", "num_val=1", "image_size=64")]
    assert main([*few, "task=keypoints", "task.keypoints.flip=[0,1]"]) == 2  # the drawn set has three points
    assert "task.keypoints.flip" in capsys.readouterr().err
