"""The detection head: two branches of box and class stems over three levels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from lucid_yolo.nn.blocks import ConvUnit
from lucid_yolo.nn.predictions import BranchPredictions, Predictions

PRIOR = 0.01
"""Probability a class stem states before training (arXiv 1708.02002); without it the first losses ruin the network."""


class Stem(nn.Sequential):
    """Two pairs of depthwise 3x3 and 1x1 convolution units, then a plain 1x1 convolution with bias."""

    def __init__(self, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__(
            ConvUnit(in_channels, in_channels, 3, groups=in_channels),
            ConvUnit(in_channels, hidden),
            ConvUnit(hidden, hidden, 3, groups=hidden),
            ConvUnit(hidden, hidden),
            nn.Conv2d(hidden, out_channels, 1),
        )


def class_stem(in_channels: int, hidden: int, num_classes: int) -> Stem:
    """Make a stem whose sigmoid outputs start at the prior."""
    stem = Stem(in_channels, hidden, num_classes)
    final = stem[-1]
    assert isinstance(final, nn.Conv2d)
    assert final.bias is not None
    nn.init.constant_(final.bias, -math.log((1 - PRIOR) / PRIOR))
    return stem


def flatten_levels(stems: Iterable[nn.Module], levels: Sequence[Tensor]) -> Tensor:
    """Apply one stem a level and join the outputs.

    Args:
        stems: one module a level, (B, C, H, W) to (B, D, H, W).
        levels: features, finest first.

    Returns:
        (B, A, D), level-major and row-major.
    """
    outputs = [stem(level) for stem, level in zip(stems, levels, strict=True)]
    # In channels_last memory the permuted map is already (H * W, D): a view.
    return torch.cat([y.permute(0, 2, 3, 1).reshape(y.shape[0], -1, y.shape[1]) for y in outputs], dim=1)


class DetectBranch(nn.Module):
    """Box and class stems of one branch."""

    def __init__(self, channels: Sequence[int], num_classes: int) -> None:
        super().__init__()
        self.box = nn.ModuleList(Stem(c, hidden_width(c), 4) for c in channels)
        self.cls = nn.ModuleList(class_stem(c, hidden_width(c), num_classes) for c in channels)

    def forward(self, levels: Sequence[Tensor]) -> BranchPredictions:
        """Map features, finest first, to raw predictions over all anchors."""
        return BranchPredictions(flatten_levels(self.box, levels), flatten_levels(self.cls, levels))


class DetectHead(nn.Module):
    """A one-to-many and a one-to-one branch with parameters of their own (arXiv 2405.14458).

    Args:
        channels: channels of the levels, finest first.
        num_classes: number of classes.
        detach_one_to_one: stop the one-to-one branch's gradient at its input.
    """

    def __init__(self, channels: Sequence[int], num_classes: int, *, detach_one_to_one: bool) -> None:
        super().__init__()
        self.detach_one_to_one = detach_one_to_one
        self.one_to_many = DetectBranch(channels, num_classes)
        self.one_to_one = DetectBranch(channels, num_classes)

    def forward(self, levels: Sequence[Tensor]) -> Predictions:
        """Map features, finest first, to the raw predictions of both branches."""
        separate = [level.detach() for level in levels] if self.detach_one_to_one else levels
        return Predictions(self.one_to_many(levels), self.one_to_one(separate))


def hidden_width(channels: int) -> int:
    """Channels inside a stem on a level of ``channels``."""
    return max(16, channels // 3)
