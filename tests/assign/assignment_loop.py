"""The assignment as a loop over branches, images, objects and anchors, in Python floats."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lucid_yolo.config.tasks import AssignerConfig
from lucid_yolo.data.batch import Targets


@dataclass
class SlowAssignment:
    """Per (branch, image, anchor): the object's row and weight of the positives."""

    found: dict[tuple[int, int, int], tuple[int, float]]

    def tensors(self, batch: int, anchors: int) -> tuple[Tensor, Tensor, Tensor]:
        positive = torch.zeros(2, batch, anchors, dtype=torch.bool)
        row = torch.zeros(2, batch, anchors, dtype=torch.int64)
        weight = torch.zeros(2, batch, anchors, dtype=torch.float64)
        for key, (r, w) in self.found.items():
            positive[key], row[key], weight[key] = True, r, w
        return positive, row, weight


def overlap(a: list[float], b: list[float]) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    inter = max(width, 0.0) * max(height, 0.0)
    area_a = max(a[2] - a[0], 0.0) * max(a[3] - a[1], 0.0)
    area_b = max(b[2] - b[0], 0.0) * max(b[3] - b[1], 0.0)
    union = area_a + area_b - inter
    return inter / union if union > 0 else 0.0


def inside(x: float, y: float, box: list[float], config: AssignerConfig) -> bool:
    low, high = list(box[:2]), list(box[2:])
    for i in range(2):
        if high[i] - low[i] < config.small_side:
            middle = (low[i] + high[i]) / 2
            low[i], high[i] = middle - config.small_reference / 2, middle + config.small_reference / 2
    return low[0] <= x <= high[0] and low[1] <= y <= high[1]


def inside_turned(x: float, y: float, box: list[float], config: AssignerConfig) -> bool:
    """The same for cx, cy, w, h, theta: the point is turned back."""
    back = complex(x - box[0], y - box[1]) * cmath.exp(-1j * box[4])
    width, height = (config.small_reference if side < config.small_side else side for side in box[2:4])
    return abs(back.real) <= width / 2 + 1e-4 and abs(back.imag) <= height / 2 + 1e-4


def slow_assignment(
    logits: Tensor,
    boxes: Tensor,
    centers: Tensor,
    targets: Targets,
    config: AssignerConfig,
    *,
    lies_in: Callable[[float, float, list[float], AssignerConfig], bool] = inside,
) -> SlowAssignment:
    """``lies_in`` is asked about the box of an object, or about its rotated box where there is one."""
    regions = targets.boxes if targets.rotated is None else targets.rotated
    found: dict[tuple[int, int, int], tuple[int, float]] = {}
    for branch, topk in enumerate((config.topk_one_to_many, config.topk_one_to_one)):
        for image in range(logits.shape[1]):
            taken: dict[int, dict[int, tuple[float, float]]] = {}  # row -> anchor -> (t, u)
            for row in range(len(targets.valid)):
                if targets.valid[row] and targets.image_index[row] == image:
                    truth, label = targets.boxes[row].tolist(), int(targets.classes[row])
                    region = regions[row].tolist()
                    near = [lies_in(x, y, region, config) for x, y in centers.tolist()]
                    values = metrics(logits[branch, image, :, label], boxes[branch, image], near, truth, config)
                    best = sorted(values, key=lambda a: -values[a][0])[:topk]
                    taken[row] = {a: values[a] for a in best}
            settle(taken)
            for row, values in taken.items():
                kept = sorted(values, key=lambda a: -values[a][0])[: 1 if branch == 1 else None]
                if kept:
                    t_max, u_max = max(values[a][0] for a in kept), max(values[a][1] for a in kept)
                    for a in kept:
                        found[branch, image, a] = (row, values[a][0] * u_max / t_max if t_max > 0 else 0.0)
    return SlowAssignment(found)


def metrics(
    logits: Tensor, boxes: Tensor, near: list[bool], truth: list[float], config: AssignerConfig
) -> dict[int, tuple[float, float]]:
    """(t, u) of each candidate of one object."""
    values = {}
    for a, candidate in enumerate(near):
        if candidate:
            s, u = 1 / (1 + math.exp(-logits[a].item())), overlap(boxes[a].tolist(), truth)
            values[a] = (s**config.alpha * u**config.beta, u)
    return values


def settle(taken: dict[int, dict[int, tuple[float, float]]]) -> None:
    """Leave each anchor with the object of the largest t, the lowest row among equals."""
    for a in {a for values in taken.values() for a in values}:
        rivals = [row for row in taken if a in taken[row]]
        winner = min(rivals, key=lambda row: (-taken[row][a][0], row))
        for row in rivals:
            if row != winner:
                del taken[row][a]
