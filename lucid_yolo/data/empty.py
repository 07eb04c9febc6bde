"""Target rows that hold nothing: what a batch is filled up with, and what a step without data computes with."""

from __future__ import annotations

from dataclasses import fields, replace

import torch
from torch import Tensor

from lucid_yolo.data.batch import Targets
from lucid_yolo.data.labels.base import LabelKind, LabelSpec


def empty_rows(rows: int) -> Targets:
    """Make padding rows with the fields that the targets of every task have.

    Args:
        rows: T.
    """
    return Targets(
        image_index=torch.zeros(rows, dtype=torch.int64),
        classes=torch.zeros(rows, dtype=torch.int64),
        boxes=torch.zeros(rows, 4),
        valid=torch.zeros(rows, dtype=torch.bool),
    )


def empty_targets(labels: LabelKind, spec: LabelSpec, *, rows: int, image_size: int) -> Targets:
    """Make padding rows with every field that a task's targets have.

    Args:
        labels: what the task learns beside box and class.
        spec: what the labels ask for.
        rows: T.
        image_size: side of the canvas in pixels.
    """
    targets = empty_rows(rows)
    match labels:
        case LabelKind.BOXES:
            return targets
        case LabelKind.POLYGONS:
            return replace(targets, masks=torch.zeros(rows, image_size // 4, image_size // 32, dtype=torch.uint8))
        case LabelKind.KEYPOINTS:
            assert spec.keypoints is not None
            return replace(targets, keypoints=torch.zeros(rows, len(spec.keypoints), 3))
        case LabelKind.CORNERS:
            return replace(targets, rotated=torch.zeros(rows, 5))


def bytes_of(targets: Targets) -> int:
    """Memory that targets take."""
    tensors = (getattr(targets, field.name) for field in fields(targets))
    return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, Tensor))
