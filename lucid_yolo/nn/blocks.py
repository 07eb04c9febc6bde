"""Building blocks of the backbone and the neck.

Every activation is out of place: an in-place one makes autograd keep a clone of its input. Batch normalisation keeps
no batch
counter: with a fixed momentum nothing reads it, and it would cost one kernel a layer and step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lucid_yolo.nn.depthwise import DepthwiseConv2d
from lucid_yolo.nn.max_pool import MaxPool
from lucid_yolo.nn.norms import Normed

HEAD_WIDTH = 64
"""Channels an attention head spans."""


class BatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation without ``num_batches_tracked``; eps 1e-5 and momentum 0.1 as in torch."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.num_batches_tracked = None

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        # torch's own version adds the missing counter to the dictionary, which strict loading then refuses.
        nn.Module._load_from_state_dict(self, *args, **kwargs)


class ConvNorm(Normed):
    """Bias-free convolution with "same" padding, then batch normalisation."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel: int = 1, *, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        if groups == in_channels == out_channels and stride == 1:
            self.conv: nn.Conv2d = DepthwiseConv2d(in_channels, kernel)
        else:
            self.conv = nn.Conv2d(
                in_channels, out_channels, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False
            )
        self.norm = BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, H, W) to (B, out, H / stride, W / stride)."""
        return self.norms.normalise(self.conv(x), self.norm)


class ConvUnit(ConvNorm):
    """Convolution, batch normalisation, SiLU."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, H, W) to (B, out, H / stride, W / stride)."""
        return self.norms.normalise_and_activate(self.conv(x), self.norm)


class Bottleneck(nn.Module):
    """Two 3x3 convolution units, with the identity added."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = ConvUnit(channels, channels, 3)
        self.second = ConvUnit(channels, channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        y: Tensor = x + self.second(self.first(x))
        return y


class C3k(nn.Module):
    """Two 1x1 splits of half the width, bottlenecks on one of them, a 1x1 fuse."""

    def __init__(self, channels: int, repeats: int = 1) -> None:
        super().__init__()
        hidden = channels // 2
        self.main = ConvUnit(channels, hidden)
        self.side = ConvUnit(channels, hidden)
        self.units = nn.Sequential(*(Bottleneck(hidden) for _ in range(repeats)))
        self.fuse = ConvUnit(2 * hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        y: Tensor = self.fuse(torch.cat((self.units(self.main(x)), self.side(x)), dim=1))
        return y


class C3k2(nn.Module):
    """A 1x1 split in two, a chain of inner units on the second half, every link concatenated, a 1x1 fuse.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        repeats: length of the chain.
        unit: makes an inner unit from its number of channels.
        expansion: width of the inner units relative to the output.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        repeats: int,
        unit: Callable[[int], nn.Module],
        *,
        expansion: float = 0.5,
    ) -> None:
        super().__init__()
        hidden = int(out_channels * expansion)
        self.split = ConvUnit(in_channels, 2 * hidden)
        self.units = nn.ModuleList(unit(hidden) for _ in range(repeats))
        self.fuse = ConvUnit((2 + repeats) * hidden, out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, H, W) to (B, out, H, W)."""
        links = list(self.split(x).chunk(2, dim=1))
        for unit in self.units:
            links.append(unit(links[-1]))
        y: Tensor = self.fuse(torch.cat(links, dim=1))
        return y


class SPPF(nn.Module):
    """Spatial pyramid of three chained 5x5 max pools, with the input added to the output."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = channels // 2
        self.reduce = ConvUnit(channels, hidden)
        self.pool = MaxPool(5)
        self.fuse = ConvUnit(4 * hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        levels = [self.reduce(x)]
        for _ in range(3):
            levels.append(self.pool(levels[-1]))
        y: Tensor = x + self.fuse(torch.cat(levels, dim=1))
        return y


class Attention(nn.Module):
    """Self-attention over the positions of a feature map, with a depthwise positional term.

    Written as two products and a softmax: a fused kernel gains 3 % at most and its backward pass is not reproducible.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.heads = max(1, channels // HEAD_WIDTH)
        self.head_dim = channels // self.heads
        self.key_dim = self.head_dim // 2
        self.scale = self.key_dim**-0.5
        self.qkv = ConvNorm(channels, channels + 2 * self.heads * self.key_dim)
        self.position = ConvNorm(channels, channels, 3, groups=channels)
        self.project = ConvNorm(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        keys = self.heads * self.key_dim
        q, k, v = self.qkv(x).split((keys, keys, self.heads * self.head_dim), dim=1)
        weights = (self._tokens(q * self.scale) @ self._tokens(k).transpose(-2, -1)).softmax(dim=-1)
        mixed = (weights @ self._tokens(v)).transpose(1, 2).flatten(2)  # (B, N, C)
        # The convolution comes first: the sum keeps the memory format of its first operand.
        y: Tensor = self.project(self.position(v) + mixed.transpose(1, 2).reshape(v.shape))
        return y

    def _tokens(self, x: Tensor) -> Tensor:
        """View (B, heads * D, H, W) as (B, heads, N, D)."""
        return x.reshape(x.shape[0], self.heads, -1, x.shape[2] * x.shape[3]).transpose(-2, -1)


class PSABlock(nn.Module):
    """Attention and a two-layer convolutional network, each added to its input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.attention = Attention(channels)
        self.network = nn.Sequential(ConvUnit(channels, 2 * channels), ConvNorm(2 * channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        x = x + self.attention(x)
        y: Tensor = x + self.network(x)
        return y


class C2PSA(nn.Module):
    """A 1x1 split in two, PSA blocks on the second half, a 1x1 fuse."""

    def __init__(self, channels: int, repeats: int) -> None:
        super().__init__()
        hidden = channels // 2
        self.split = ConvUnit(channels, 2 * hidden)
        self.units = nn.Sequential(*(PSABlock(hidden) for _ in range(repeats)))
        self.fuse = ConvUnit(2 * hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        kept, attended = self.split(x).chunk(2, dim=1)
        y: Tensor = self.fuse(torch.cat((kept, self.units(attended)), dim=1))
        return y


class Upsample(nn.Module):
    """Doubling of height and width; see `upsample`."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, C, 2 H, 2 W)."""
        return upsample(x)


def upsample(x: Tensor) -> Tensor:
    """Double height and width: four positions take the number of each.

    In the type of the map, which is exact: autocast would compute in float32, and then all that is joined to it.

    Args:
        x: (B, C, H, W).

    Returns:
        (B, C, 2 H, 2 W).
    """
    if x.is_meta:  # autocast knows no such device
        return F.interpolate(x, scale_factor=2.0, mode="nearest")
    with torch.autocast(x.device.type, enabled=False):
        return F.interpolate(x, scale_factor=2.0, mode="nearest")
