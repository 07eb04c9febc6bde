"""Predictions tile by tile against those of the tiles as pictures of their own, for every task."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import lucid_yolo as ly
from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.schema import ModelConfig
from lucid_yolo.config.tasks import TaskName
from lucid_yolo.data.labels.base import KeypointSpec, LabelSpec
from lucid_yolo.engine.checkpoint import AVERAGED, BLOCK, ModelInfo
from lucid_yolo.tasks import get_task

SIDE = 64
RNG = np.random.default_rng(3)
PICTURES = [RNG.integers(0, top, (SIDE, SIDE, 3)).astype(np.uint8) for top in (256, 224, 192, 160)]
PASTED = np.concatenate([np.concatenate(PICTURES[:2], axis=1), np.concatenate(PICTURES[2:], axis=1)])
SMALL = PICTURES[1][:40]
OFFSETS = [(0, 0), (SIDE, 0), (0, SIDE), (SIDE, SIDE)]


def checkpoint(folder: Path, task: TaskName) -> Path:
    """An untrained model as a file."""
    points = KeypointSpec(("a", "b"), ((0, 1),), flip=None, sigmas=None) if task is TaskName.KEYPOINTS else None
    spec = LabelSpec(2, points)
    scale = ModelConfig(variant="n", depth=0.5, width=0.25, max_channels=1024)
    torch.manual_seed(0)
    model = get_task(task).build_model(scale, spec)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
    with torch.no_grad():  # with statistics of such pictures the outputs differ from place to place
        model.train()(torch.from_numpy(np.stack(PICTURES)).permute(0, 3, 1, 2) / 255)
        for name, weight in model.named_parameters():
            if name.endswith(".4.bias") and ".box." in name:
                weight.add_(1.5)  # boxes with an area
            if name.endswith(".4.bias") and ".cls." in name:
                weight.add_(6)  # scores above the threshold of the suppression
    info = ModelInfo(
        task=task.value,
        variant="n",
        depth=scale.depth,
        width=scale.width,
        max_channels=scale.max_channels,
        class_names=("a", "b"),
        category_ids=(1, 2),
        image_size=SIDE,
        exif_orientation="apply",
        data="{}",
        keypoints=None if points is None else {"names": ["a", "b"], "skeleton": [[0, 1]], "flip": None, "sigmas": None},
    )
    path = folder / f"{task.value}.ckpt"
    state = {f"{AVERAGED}{name}": value for name, value in model.state_dict().items()}
    torch.save({BLOCK: info.as_plain(), "state_dict": state}, path)
    return path


def in_quadrant(centers: np.ndarray, offset: tuple[int, int]) -> np.ndarray:
    """Which centres, in pixels of the tile at ``offset``, lie on its side of the two middle lines of the picture."""
    return ((centers + np.array(offset) >= SIDE) == (np.array(offset) == SIDE)).all(axis=1)


@pytest.mark.parametrize("decode", ["one_to_one", "one_to_many"])
@pytest.mark.parametrize("task", list(TaskName))
def test_a_pasted_picture_has_the_detections_of_its_parts(tmp_path: Path, task: TaskName, decode: str) -> None:
    path = checkpoint(tmp_path, task)
    # Batches of 3: the pasted picture's last window comes in another batch than its first ones, beside a small picture.
    settings = {"confidence": 0.0, "decode": decode, "accelerator": "cpu", "batch_size": 3}
    *parts, alone = (one.detections for one in ly.predict(path, [*PICTURES, SMALL], **settings))
    tiled, small = (one.detections for one in ly.predict(path, [PASTED, SMALL], tile=SIDE, overlap=0, **settings))
    if task is TaskName.OBB:  # not clipped to the tile: another one answers for a centre beyond the line between them
        parts = [one.take(in_quadrant(one.rotated[:, :2], offset)) for one, offset in zip(parts, OFFSETS, strict=True)]
    assert min(map(len, (*parts, alone))) > 4
    assert len({one.scores.max() for one in parts}) == 4
    order = np.argsort(-np.concatenate([one.scores for one in parts]), kind="stable")

    def expected(name: str, *moves: int) -> np.ndarray:
        """A field of the parts, with the offset added to some of its last columns."""
        values = []
        for one, offset in zip(parts, OFFSETS, strict=True):
            moved = getattr(one, name).copy()
            for column, way in zip(range(len(moves)), moves, strict=True):
                moved[..., column] += offset[way]
            values.append(moved)
        return np.concatenate(values)[order]

    assert np.array_equal(tiled.scores, expected("scores"))
    assert np.array_equal(tiled.classes, expected("classes"))
    if task is TaskName.OBB:
        assert np.allclose(tiled.rotated, expected("rotated", 0, 1), atol=1e-4)
    else:
        assert np.allclose(tiled.boxes, expected("boxes", 0, 1, 0, 1), atol=1e-4)
    if task is TaskName.KEYPOINTS:
        assert np.allclose(tiled.keypoints, expected("keypoints", 0, 1), atol=1e-4)
    if task is TaskName.SEGMENT:
        masks = [(mask.decode(), offset) for one, offset in zip(parts, OFFSETS, strict=True) for mask in one.masks]
        assert sum(mask.any() for mask, _ in masks) > 4
        for row, position in enumerate(order.tolist()):
            mask, (x, y) = masks[position]
            whole = np.zeros(PASTED.shape[:2], bool)
            whole[y : y + SIDE, x : x + SIDE] = mask
            assert np.array_equal(tiled.masks[row].decode(), whole)
    assert np.array_equal(small.boxes, alone.boxes)
    assert np.array_equal(small.scores, alone.scores)


def test_records_are_those_of_the_whole_picture(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, TaskName.SEGMENT)
    (found,) = ly.predict(path, PASTED, tile=SIDE, overlap=16, confidence=0.0, out=tmp_path / "out", accelerator="cpu")
    records = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert len(records) == len(found) > 0
    assert {tuple(record["segmentation"]["size"]) for record in records} == {(2 * SIDE, 2 * SIDE)}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tile": 64, "overlap": 64}, "overlap=64 must be less than tile=64"),
        ({"tile": 64}, "overlap=200 must be less than tile=64"),  # 200 is what it is unless it is set
        ({"overlap": 16}, "overlap=16 is of tiles, and there are none: set tile=PIXELS too"),
    ],
)
def test_an_overlap_that_does_not_fit_the_tiles_is_refused(settings: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ly.predict("nowhere.ckpt", PASTED, **settings)
