"""The backbone: features at strides 8, 16 and 32."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from lucid_yolo.nn.blocks import C2PSA, SPPF, Bottleneck, C3k, C3k2, ConvUnit
from lucid_yolo.nn.scale import Scale


class Pyramid(NamedTuple):
    """Features of three levels: (B, C, S / stride, S / stride) each."""

    stride8: Tensor
    stride16: Tensor
    stride32: Tensor


class Backbone(nn.Module):
    """Convolutional stages with spatial pooling and attention on the coarsest (arXiv 2606.03748).

    Attributes:
        channels: output channels of the three levels.
    """

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        c64, c128, c256, c512, c1024 = (scale.channels(base) for base in (64, 128, 256, 512, 1024))
        self.channels = (c512, c512, c1024)
        self.stage8 = nn.Sequential(
            ConvUnit(3, c64, 3, stride=2),
            ConvUnit(c64, c128, 3, stride=2),
            C3k2(c128, c256, scale.repeats, Bottleneck, expansion=0.25),
            ConvUnit(c256, c256, 3, stride=2),
            C3k2(c256, c512, scale.repeats, Bottleneck, expansion=0.25),
        )
        self.stage16 = nn.Sequential(ConvUnit(c512, c512, 3, stride=2), C3k2(c512, c512, scale.repeats, C3k))
        self.stage32 = nn.Sequential(
            ConvUnit(c512, c1024, 3, stride=2),
            C3k2(c1024, c1024, scale.repeats, C3k),
            SPPF(c1024),
            C2PSA(c1024, scale.repeats),
        )

    def forward(self, images: Tensor) -> Pyramid:
        """Map images (B, 3, S, S) to the pyramid."""
        p3 = self.stage8(images)
        p4 = self.stage16(p3)
        return Pyramid(p3, p4, self.stage32(p4))
