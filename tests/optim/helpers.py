"""A small network with every kind of parameter, and a recorder of dispatched operations."""

from __future__ import annotations

from collections import Counter

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

READS = {"_local_scalar_dense", "item", "is_nonzero", "nonzero", "equal"}
"""Operations that read the device."""


class Recorder(TorchDispatchMode):
    """Counts operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.counts[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


def make_network(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Convolutions of equal and different shapes, a depthwise one, a linear layer, normalisation."""
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.Conv2d(8, 16, 1),
        nn.Conv2d(16, 8, 3, bias=False),
        nn.Conv2d(8, 16, 1, bias=False),
        nn.Flatten(),
        nn.Linear(16, 5),
    )
    return network.to(dtype)


def set_gradients(network: nn.Module, seed: int) -> None:
    """Give every parameter a random gradient in its own memory format."""
    generator = torch.Generator().manual_seed(seed)
    for p in network.parameters():
        p.grad = torch.empty_like(p).copy_(torch.randn(p.shape, generator=generator))


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor: tells -0.0 from 0.0 and compares NaN."""
    return tensor.detach().clone().contiguous().flatten().view(torch.uint8)
