"""The detector: backbone, neck and head."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from lucid_yolo.nn.backbone import Backbone, Pyramid
from lucid_yolo.nn.heads.detect import DetectHead
from lucid_yolo.nn.neck import Neck
from lucid_yolo.nn.predictions import BranchPredictions, Predictions
from lucid_yolo.nn.scale import Scale

__all__ = ["Detector", "Scale"]


class Detector(nn.Module):
    """YOLO26-style detector (arXiv 2606.03748).

    The forward pass is a pure function of images, parameters and, in training, batch statistics: no shape depends on
    the data and nothing is read back to the host. Backbone, neck and head are called one after the other, each with
    tensors in and tensors out, so that each can be recorded or compiled by itself.

    Args:
        scale: the variant.
        num_classes: number of classes.
        detach_one_to_one: stop the one-to-one branch's gradient at the neck.
    """

    strides: ClassVar[tuple[int, int, int]] = (8, 16, 32)

    def __init__(self, scale: Scale, num_classes: int, *, detach_one_to_one: bool = False) -> None:
        super().__init__()
        self.backbone = Backbone(scale)
        self.neck = Neck(scale, self.backbone.channels)
        self.head = DetectHead(self.neck.channels, num_classes, detach_one_to_one=detach_one_to_one)

    def features(self, images: Tensor) -> Pyramid:
        """Map images (B, 3, S, S), S a multiple of 32, to the neck's features."""
        fused: Pyramid = self.neck(*self.backbone(images))
        return fused

    def forward(self, images: Tensor) -> Predictions:
        """Map images (B, 3, S, S), S a multiple of 32, to the raw predictions of both branches."""
        predictions: Predictions = self.head(self.features(images))
        return predictions

    def one_to_one_forward(self, images: Tensor) -> BranchPredictions:
        """Map images (B, 3, S, S) to the raw one-to-one predictions: the deployed view."""
        predictions: BranchPredictions = self.head.one_to_one(self.features(images))
        return predictions
