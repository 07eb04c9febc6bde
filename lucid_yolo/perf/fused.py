"""What ``kernels=fused`` provides for one fit: our kernels for what a training step computes by short ones of torch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from lucid_yolo.config.schema import OnUnmet
from lucid_yolo.nn.max_pool import forget_pools, set_pools
from lucid_yolo.nn.norms import forget_norms, set_norms
from lucid_yolo.perf.first_call import FirstCall, Words
from lucid_yolo.perf.norms import FusedNorms
from lucid_yolo.perf.plan import Scalar
from lucid_yolo.perf.pools import FusedPools

WORDS = Words(
    what="the fused kernels",
    row="kernels",
    option="kernels=fused",
    without="kernels=stock",
    instead="torch normalises, activates and pools",
)


class FusedKernels:
    """Normalises, activates and pools. Where one kind of kernels cannot be compiled, torch does all of it from then on.

    Args:
        device: of the step; maps elsewhere are torch's.
        on_unmet: whether such a failure is an error instead.

    Attributes:
        norms: normalise and activate.
        pools: take maxima over windows.
    """

    def __init__(self, device: torch.device, on_unmet: OnUnmet) -> None:
        self._first_call = FirstCall(WORDS, on_unmet)
        self.norms = FusedNorms(device, self._first_call)
        self.pools = FusedPools(device, self._first_call)

    def provide(self, network: nn.Module) -> None:
        """Have the maps of a network computed by the kernels, until `withdraw_kernels`."""
        set_norms(network, self.norms)
        set_pools(network, self.pools)

    def outcome(self) -> Mapping[str, Scalar]:
        """What happened, for the run plan: why torch did it all, or who did what."""
        if self._first_call.failure:
            return {"failure": self._first_call.failure}
        parts = {"norm": self.norms.outcome(), "pool": self.pools.outcome()}
        return {f"{part}_{name}": value for part, found in parts.items() for name, value in found.items()}


def withdraw_kernels(network: nn.Module) -> None:
    """Have the maps of a network computed by torch again."""
    forget_norms(network)
    forget_pools(network)
