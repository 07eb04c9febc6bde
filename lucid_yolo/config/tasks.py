"""The part of the configuration that says what is learned: each task with its losses and its assignment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from lucid_yolo.config.choice import Choice


class TaskName(Choice):
    """What is learned."""

    DETECT = "detect"
    SEGMENT = "segment"
    KEYPOINTS = "keypoints"
    OBB = "obb"


class PointDensity(Choice):
    """What the errors of points are taken to follow: a Laplace density that a flow corrects, or the former alone."""

    FLOW = "flow"
    LAPLACE = "laplace"


@dataclass
class LossConfig:
    """Weights of the loss terms and of the two branches."""

    box: float = 7.5
    cls: float = 0.5
    l1: float = 1.5  # 6 times the mean over the four sides: the sum over them trains worse on BCCD
    alpha_start: float = 0.8  # weight of the one-to-many branch in the first epoch
    alpha_end: float = 0.1  # and in the last one


@dataclass
class ObbLossConfig(LossConfig):
    """Weights for oriented boxes: ``box`` is that of the overlap of rotated boxes, ``l1`` of centre and sides.

    ``l1`` is as for upright boxes: with 6, five epochs of data=shapes reached a quarter of the AP (one seed).
    """

    angle: float = 0.25  # at 1 elongated boxes become unstable


@dataclass
class AssignerConfig:
    """Task-aligned assignment (arXiv 2108.07755) and its small-target rule."""

    topk_one_to_many: int = 10
    topk_one_to_one: int = 7
    alpha: float = 1.0
    beta: float = 6.0
    small_side: float = 8.0  # pixels: a side below this is widened, for candidacy only ...
    small_reference: float = 16.0  # ... to this


@dataclass
class TaskConfig:
    """The task and its objective."""

    name: TaskName = MISSING
    loss: LossConfig = field(default_factory=LossConfig)
    assigner: AssignerConfig = field(default_factory=AssignerConfig)


@dataclass
class SegmentLossConfig(LossConfig):
    """Weights of the loss terms of a segmentation, and how many masks a step learns."""

    mask: float = 2.5
    semantic: float = 0.5
    mask_slots_one_to_many: int = 96  # masks an image, those of the largest weight in the assignment
    mask_slots_one_to_one: int = 64  # this branch has one an object


@dataclass
class SegmentTaskConfig(TaskConfig):
    """Boxes, classes and masks."""

    loss: SegmentLossConfig = field(default_factory=SegmentLossConfig)


@dataclass
class KeypointLossConfig(LossConfig):
    """Weights of the terms with those of the points: the gains that the paper found best for s."""

    rle: float = 1.0  # residual log-likelihood (arXiv 2107.11291)
    oks: float = 24.0  # 1 - Object Keypoint Similarity; without it points stay near the centre for long
    density: PointDensity = PointDensity.FLOW
    anchors_per_object: int = 10  # of the one-to-many branch whose points are learned; less saves memory, see the loss


@dataclass
class KeypointsConfig:
    """What is known about the key points; null: what the data says."""

    flip: list[int] | None = None  # position that each point takes in a mirrored picture, such as [0, 2, 1]
    sigmas: list[float] | None = None  # spread of each in OKS; null: COCO's for its 17 points, else 0.072 for all
    skeleton: list[Any] | None = None  # positions, from 0, that a line joins, such as [[0, 1], [1, 2]]


@dataclass
class KeypointTaskConfig(TaskConfig):
    """Key points and their objective."""

    loss: KeypointLossConfig = field(default_factory=KeypointLossConfig)
    keypoints: KeypointsConfig = field(default_factory=KeypointsConfig)


@dataclass
class ObbTaskConfig(TaskConfig):
    """Oriented boxes and their objective."""

    loss: ObbLossConfig = field(default_factory=ObbLossConfig)
