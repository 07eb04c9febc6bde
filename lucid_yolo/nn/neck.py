"""The neck: a path aggregation network that mixes the three levels, coarse to fine and back."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lucid_yolo.nn.backbone import Pyramid
from lucid_yolo.nn.blocks import Bottleneck, C3k, C3k2, ConvUnit, PSABlock, upsample
from lucid_yolo.nn.scale import Scale


class Neck(nn.Module):
    """Top-down and bottom-up fusion, with attention on the coarsest output (arXiv 2606.03748).

    Attributes:
        channels: output channels of the three levels.
    """

    def __init__(self, scale: Scale, in_channels: tuple[int, int, int]) -> None:
        super().__init__()
        p3, p4, p5 = in_channels
        c256, c512, c1024 = (scale.channels(base) for base in (256, 512, 1024))
        self.channels = (c256, c512, c1024)
        self.top_down16 = C3k2(p5 + p4, c512, scale.repeats, C3k)
        self.top_down8 = C3k2(c512 + p3, c256, scale.repeats, Bottleneck)
        self.down16 = ConvUnit(c256, c256, 3, stride=2)
        self.bottom_up16 = C3k2(c256 + c512, c512, scale.repeats, Bottleneck)
        self.down32 = ConvUnit(c512, c512, 3, stride=2)
        self.bottom_up32 = C3k2(c512 + p5, c1024, 1, _attentive_unit)

    def forward(self, stride8: Tensor, stride16: Tensor, stride32: Tensor) -> Pyramid:
        """Map the backbone's levels to fused ones of the same strides."""
        t4 = self.top_down16(torch.cat((upsample(stride32), stride16), dim=1))
        n3 = self.top_down8(torch.cat((upsample(t4), stride8), dim=1))
        n4 = self.bottom_up16(torch.cat((self.down16(n3), t4), dim=1))
        n5 = self.bottom_up32(torch.cat((self.down32(n4), stride32), dim=1))
        return Pyramid(n3, n4, n5)


def _attentive_unit(channels: int) -> nn.Module:
    return nn.Sequential(C3k(channels, repeats=2), PSABlock(channels))
