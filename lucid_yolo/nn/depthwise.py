"""Depthwise convolutions that start at once on CUDA.

cuDNN compiles a kernel for every depthwise shape when it is first met, forward, for the input and for the weight: 0.2
to 0.9 s each on the host, most of the first step of the smallest network. torch's own kernels are there already.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class DepthwiseConv2d(nn.Conv2d):
    """One bias-free filter a channel at stride 1, with "same" padding; on CUDA without cuDNN.

    Args:
        channels: of input and output.
        kernel: side of the filters, odd.
    """

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__(channels, channels, kernel, padding=kernel // 2, groups=channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape and memory order."""
        if not x.is_cuda or torch.compiler.is_compiling():
            return super().forward(x)
        weight = self.weight
        if torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
            x, weight = x.to(dtype), weight.to(dtype)
        return _Native.apply(x, weight)  # type: ignore[no-any-return, no-untyped-call]


class _Native(torch.autograd.Function):
    """torch's own kernels, which compute on contiguous maps."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        with _without_cudnn():
            y = F.conv2d(x, weight, padding=weight.shape[-1] // 2, groups=len(weight))
        return y.contiguous(memory_format=_memory_format(x))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        margin = weight.shape[-1] // 2
        with _without_cudnn():
            to_input, to_weight, _ = torch.ops.aten.convolution_backward(
                gradient,
                x,
                weight,
                None,
                stride=(1, 1),
                padding=(margin, margin),
                dilation=(1, 1),
                transposed=False,
                output_padding=(0, 0),
                groups=len(weight),
                output_mask=(*ctx.needs_input_grad, False),
            )
        if to_input is not None:
            to_input = to_input.contiguous(memory_format=_memory_format(x))
        return to_input, to_weight


@contextmanager
def _without_cudnn() -> Iterator[None]:
    # The switch is the whole process's: a convolution of another thread meanwhile is slower, and right.
    before = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = before


def _memory_format(maps: Tensor) -> torch.memory_format:
    lies_last = maps.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if lies_last else torch.contiguous_format
