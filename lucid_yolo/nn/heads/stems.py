"""Stems: the small networks that turn the features of a level into one kind of output."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lucid_yolo.nn.blocks import ConvUnit
from lucid_yolo.nn.lanes import IN_TURN, Laned, Lanes

PRIOR = 0.01
"""Probability a class logit states before training (arXiv 1708.02002); without it the first losses ruin the network."""


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
    start_at_prior(final)
    return stem


def start_at_prior(final: nn.Conv2d) -> None:
    """Set the bias of a convolution that gives class logits."""
    assert final.bias is not None
    nn.init.constant_(final.bias, -math.log((1 - PRIOR) / PRIOR))


def hidden_width(channels: int) -> int:
    """Channels inside a box or mask coefficient stem on a level of ``channels``: a third of them.

    Rounded down to a multiple of 8: between other widths convolutions miss the fast kernels of a GPU.
    """
    return max(16, channels // 24 * 8)


def class_width(channels: int) -> int:
    """Channels inside a class stem on a level of ``channels``: a third of them, to the nearest multiple of 8."""
    return max(16, (channels + 12) // 24 * 8)


def flatten_levels(stems: Iterable[nn.Module], levels: Sequence[Tensor], lanes: Lanes = IN_TURN) -> Tensor:
    """Apply one stem a level and join the outputs.

    Args:
        stems: one module a level, (B, C, H, W) to (B, D, H, W).
        levels: features, finest first.
        lanes: run the stems.

    Returns:
        (B, A, D), level-major and row-major.
    """
    outputs = lanes.run(list(stems), levels)
    # In channels_last memory the permuted map is already (H * W, D): a view.
    return torch.cat([y.permute(0, 2, 3, 1).reshape(y.shape[0], -1, y.shape[1]) for y in outputs], dim=1)


def separate(levels: Sequence[Tensor], *, detach: bool) -> Sequence[Tensor]:
    """What the one-to-one branch reads: the features, without their gradient where it is to stop there."""
    return [level.detach() for level in levels] if detach else levels


class Pair(NamedTuple):
    """One output of both branches, (B, A, ...) each."""

    one_to_many: Tensor
    one_to_one: Tensor


class StemPair(Laned):
    """Stems of one further output, of both branches: a part of a head that can be called and recorded by itself.

    Args:
        channels: channels of the levels, finest first.
        widths: channels inside the stems, one a level.
        outputs: D, numbers at each anchor.
        detach_one_to_one: stop the one-to-one branch's gradient at its input.
    """

    def __init__(
        self, channels: Sequence[int], widths: Sequence[int], outputs: int, *, detach_one_to_one: bool
    ) -> None:
        super().__init__()
        self.detach_one_to_one = detach_one_to_one
        sizes = list(zip(channels, widths, strict=True))
        self.one_to_many = nn.ModuleList(Stem(c, width, outputs) for c, width in sizes)
        self.one_to_one = nn.ModuleList(Stem(c, width, outputs) for c, width in sizes)

    def forward(self, levels: Sequence[Tensor]) -> Pair:
        """Map features, finest first, to the outputs of both branches."""
        one_to_many = self.finish(flatten_levels(self.one_to_many, levels, self.lanes))
        return Pair(one_to_many, self.deployed(separate(levels, detach=self.detach_one_to_one)))

    def deployed(self, levels: Sequence[Tensor]) -> Tensor:
        """Map features, finest first, to the outputs of the one-to-one branch."""
        return self.finish(flatten_levels(self.one_to_one, levels, self.lanes))

    def finish(self, outputs: Tensor) -> Tensor:
        """Turn (B, A, D) outputs of the stems into what the head hands out."""
        raise NotImplementedError
