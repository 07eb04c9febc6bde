"""The segmentation head: mask coefficients at every anchor, prototypes they mix, and class maps to train with.

A mask is the sum of the prototypes, weighted by the coefficients of its anchor (arXiv 1904.02689).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lucid_yolo.nn.blocks import ConvUnit, Upsample, upsample
from lucid_yolo.nn.heads.detect import TwoBranchHead
from lucid_yolo.nn.heads.stems import Pair, StemPair, hidden_width, start_at_prior
from lucid_yolo.nn.layout import with_gradient_alike
from lucid_yolo.nn.parts import Part, PartCaller, directly
from lucid_yolo.nn.predictions import DeployedSegment, Predictions, SegmentBranch, SegmentPredictions

PROTOTYPES = 32
"""Prototypes, and coefficients at an anchor."""


class Coefficients(StemPair):
    """Mask coefficients (B, A, 32) of both branches, between -1 and 1."""

    def __init__(self, channels: Sequence[int], *, detach_one_to_one: bool) -> None:
        widths = [hidden_width(c) for c in channels]
        super().__init__(channels, widths, PROTOTYPES, detach_one_to_one=detach_one_to_one)

    def finish(self, outputs: Tensor) -> Tensor:
        """Bound (B, A, 32)."""
        return torch.tanh(outputs)


class Fusion(nn.Module):
    """Brings the coarser levels to the channels and the resolution of the finest one, and adds the three.

    Args:
        channels: channels of the levels, finest first.
    """

    def __init__(self, channels: Sequence[int]) -> None:
        super().__init__()
        finest, middle, coarsest = channels
        self.middle = nn.Conv2d(middle, finest, 1)
        self.coarsest = nn.Conv2d(coarsest, finest, 1)

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        """Map features, finest first, to (B, C, S/8, S/8)."""
        finest, middle, coarsest = levels
        # From coarse to fine: the coarsest level is added at the size of the middle one, not of the finest.
        return finest + upsample(self.middle(middle) + upsample(self.coarsest(coarsest)))


class Prototypes(nn.Sequential):
    """Convolution units at stride 8, one more at stride 4, then a plain 1x1 convolution: (B, 32, S/4, S/4)."""

    def __init__(self, channels: int) -> None:
        super().__init__(
            *(ConvUnit(channels, channels, 3) for _ in range(3)),
            Upsample(),
            ConvUnit(channels, channels, 3),
            nn.Conv2d(channels, PROTOTYPES, 1),
        )


class SegmentHead(TwoBranchHead):
    """Boxes, classes and mask coefficients of two branches, and prototypes that both use (arXiv 2606.03748).

    ``detect``, ``coefficients``, ``fusion``, ``make_prototypes`` and ``map_classes`` can be called by themselves: the
    first two with the levels, ``fusion`` too, the last two with what it returns. The gradient of the prototypes is
    never stopped: they belong to both branches.

    Args:
        channels: channels of the levels, finest first.
        num_classes: number of classes.
        detach_one_to_one: stop the one-to-one branch's gradient at its input.
    """

    def __init__(self, channels: Sequence[int], num_classes: int, *, detach_one_to_one: bool) -> None:
        super().__init__(channels, num_classes, detach_one_to_one=detach_one_to_one)
        self.coefficients = Coefficients(channels, detach_one_to_one=detach_one_to_one)
        self.fusion = Fusion(channels)
        self.prototypes = Prototypes(channels[0])
        self.semantic = nn.Conv2d(channels[0], num_classes, 1)
        start_at_prior(self.semantic)

    def compute(self, levels: Sequence[Tensor], call: PartCaller) -> SegmentPredictions:
        """Do what ``forward`` does, each part by way of ``call``."""
        self.lanes.fork()
        boxes: Predictions = call(self.boxes, levels)
        coefficients: Pair = call(Part("coefficients", (self.coefficients,), self.coefficients), levels)
        fused = call(Part("fusion", (self.fusion,), self.fusion), levels)
        return SegmentPredictions(
            SegmentBranch(*boxes.one_to_many, coefficients.one_to_many),
            SegmentBranch(*boxes.one_to_one, coefficients.one_to_one),
            call(Part("prototypes", (self.prototypes,), self.make_prototypes), fused),
            call(Part("semantic", (self.semantic,), self.map_classes), fused) if self.training else (),
        )

    def make_prototypes(self, fused: Tensor) -> Tensor:
        """Map (B, C, S/8, S/8) to (B, 32, S/4, S/4) with a gradient in its order."""
        return with_gradient_alike(self.prototypes(fused))

    def map_classes(self, fused: Tensor) -> Tensor:
        """Map (B, C, S/8, S/8) to one logit a class and cell, with a gradient in its order."""
        return with_gradient_alike(self.semantic(fused))

    def forward(self, levels: Sequence[Tensor]) -> SegmentPredictions:
        """Map features, finest first, to the raw predictions of both branches; class maps in training mode only."""
        return self.compute(levels, directly)

    def deployed(self, levels: Sequence[Tensor]) -> DeployedSegment:
        """Map features, finest first, to the raw predictions of the one-to-one branch and the prototypes."""
        self.lanes.fork()
        branch = SegmentBranch(*self.detect_deployed(levels), self.coefficients.deployed(levels))
        return DeployedSegment(branch, self.prototypes(self.fusion(levels)))
