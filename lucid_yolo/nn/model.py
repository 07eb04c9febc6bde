"""The networks: backbone, neck and the head of a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

from torch import Tensor, nn

from lucid_yolo.nn.backbone import Backbone, Pyramid
from lucid_yolo.nn.heads.detect import DetectHead
from lucid_yolo.nn.heads.keypoints import KeypointHead
from lucid_yolo.nn.heads.obb import ObbHead
from lucid_yolo.nn.heads.segment import SegmentHead
from lucid_yolo.nn.neck import Neck
from lucid_yolo.nn.parts import Part, PartCaller
from lucid_yolo.nn.predictions import (
    BranchPredictions,
    DeployedSegment,
    KeypointBranch,
    KeypointPredictions,
    ObbBranch,
    ObbPredictions,
    Predictions,
    SegmentPredictions,
)
from lucid_yolo.nn.scale import Scale

__all__ = ["Detector", "KeypointDetector", "Network", "ObbDetector", "Scale", "Segmenter"]

TRUNK = "trunk"
"""The part of backbone and neck."""

AllT_co = TypeVar("AllT_co", covariant=True)
"""Raw predictions of both branches."""

DeployedT_co = TypeVar("DeployedT_co", covariant=True)
"""Raw predictions of a deployed network."""


class Head(Protocol[AllT_co, DeployedT_co]):
    """What a network asks of its head."""

    def __call__(self, levels: Sequence[Tensor]) -> AllT_co:
        """Map features, finest first, to the raw predictions of both branches."""
        ...

    def compute(self, levels: Sequence[Tensor], call: PartCaller) -> AllT_co:
        """Do the same part by part."""
        ...

    def deployed(self, levels: Sequence[Tensor]) -> DeployedT_co:
        """Map features, finest first, to what a deployed network hands out."""
        ...


class Network(nn.Module, Generic[AllT_co, DeployedT_co]):
    """Backbone, neck and head (arXiv 2606.03748); a task's network adds its ``head``.

    The forward pass is a pure function of images, parameters and, in training, batch statistics: no shape depends on
    the data and nothing is read back to the host. Backbone, neck and head are called one after the other, each with
    tensors in and tensors out, so that each can be recorded or compiled by itself. With one seed the networks of all
    tasks start with the same backbone, neck, box and class stems.

    Args:
        scale: the variant.
    """

    strides: ClassVar[tuple[int, int, int]] = (8, 16, 32)
    head: Head[AllT_co, DeployedT_co]

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.backbone = Backbone(scale)
        self.neck = Neck(scale, self.backbone.channels)

    def features(self, images: Tensor) -> Pyramid:
        """Map images (B, 3, S, S), S a multiple of 32, to the neck's features."""
        fused: Pyramid = self.neck(*self.backbone(images))
        return fused

    def compute(self, images: Tensor, call: PartCaller) -> AllT_co:
        """Do what ``forward`` does, each part by way of ``call``."""
        levels = call(Part(TRUNK, (self.backbone, self.neck), self.features), images)
        return self.head.compute(levels, call)

    def forward(self, images: Tensor) -> AllT_co:
        """Map images (B, 3, S, S), S a multiple of 32, to the raw predictions of both branches."""
        return self.head(self.features(images))

    def one_to_one_forward(self, images: Tensor) -> DeployedT_co:
        """Map images (B, 3, S, S) to the raw one-to-one predictions: the deployed view."""
        return self.head.deployed(self.features(images))


class Detector(Network[Predictions, BranchPredictions]):
    """Network for detection; see ``Network``.

    Args:
        scale: the variant.
        num_classes: number of classes.
        detach_one_to_one: stop the one-to-one branch's gradient at the neck.
    """

    head: DetectHead

    def __init__(self, scale: Scale, num_classes: int, *, detach_one_to_one: bool = False) -> None:
        super().__init__(scale)
        self.head = DetectHead(self.neck.channels, num_classes, detach_one_to_one=detach_one_to_one)


class Segmenter(Network[SegmentPredictions, DeployedSegment]):
    """Network for instance segmentation; see ``Network``.

    Args:
        scale: the variant.
        num_classes: number of classes.
        detach_one_to_one: stop the one-to-one branch's gradient at the neck; the prototypes keep theirs.
    """

    head: SegmentHead

    def __init__(self, scale: Scale, num_classes: int, *, detach_one_to_one: bool = False) -> None:
        super().__init__(scale)
        self.head = SegmentHead(self.neck.channels, num_classes, detach_one_to_one=detach_one_to_one)


class KeypointDetector(Network[KeypointPredictions, KeypointBranch]):
    """Network for key points; see ``Network``.

    Args:
        scale: the variant.
        num_classes: number of classes.
        num_keypoints: points of an object.
        detach_one_to_one: stop the one-to-one branch's gradient at the neck.
    """

    head: KeypointHead

    def __init__(self, scale: Scale, num_classes: int, num_keypoints: int, *, detach_one_to_one: bool = False) -> None:
        super().__init__(scale)
        self.head = KeypointHead(self.neck.channels, num_classes, num_keypoints, detach_one_to_one=detach_one_to_one)


class ObbDetector(Network[ObbPredictions, ObbBranch]):
    """Network for oriented boxes; see ``Network``.

    Args:
        scale: the variant.
        num_classes: number of classes.
        detach_one_to_one: stop the one-to-one branch's gradient at the neck.
    """

    head: ObbHead

    def __init__(self, scale: Scale, num_classes: int, *, detach_one_to_one: bool = False) -> None:
        super().__init__(scale)
        self.head = ObbHead(self.neck.channels, num_classes, detach_one_to_one=detach_one_to_one)
