"""MuSGD: orthogonalized momentum for matrices, plain momentum besides (arXiv 2606.03748, 2502.16982)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, ClassVar

import torch
from torch import Tensor

from lucid_yolo.optim.buckets import BUCKET_COST, make_bucket, matrix_shape, plan_buckets
from lucid_yolo.optim.flat import FlatGroup, FlatOptimizer

ORTHOGONALIZATION, MOVE = "orthogonalization", "move"
"""Parts of an update, see `PartRunner`."""


class MuSGD(FlatOptimizer):
    """Nesterov momentum whose matrix updates are mixed with their orthogonalized form.

    With m <- momentum * m + g and g' = g + momentum * m, a parameter W of two or more dimensions, seen as
    (first dimension, all others), moves by -lr * u, where
    u = muon_weight * 0.2 * sqrt(max(rows, columns)) * NS(g') + sgd_weight * g' + weight_decay * W; vectors by -lr * g'.

    Args:
        params: parameters or groups of them.
        lr: learning rate.
        momentum: of both parts.
        weight_decay: of matrices.
        muon_weight: weight of the orthogonalized part; 0 leaves it out.
        sgd_weight: weight of the plain part.
        newton_schulz_steps: steps of the orthogonalization, always in float32.
    """

    STATE: ClassVar[tuple[str, ...]] = ("momentum_buffer",)
    HYPERPARAMETERS: ClassVar[tuple[str, ...]] = ("lr", "weight_decay", "momentum")

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 5e-4,
        muon_weight: float = 0.5,
        sgd_weight: float = 0.5,
        newton_schulz_steps: int = 5,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "muon_weight": muon_weight,
            "sgd_weight": sgd_weight,
            "newton_schulz_steps": newton_schulz_steps,
        }
        super().__init__(params, defaults)

    def arrange(self, matrices: list[Tensor]) -> list[list[Tensor]]:
        """Bring matrices of one stack together."""
        if not matrices:
            return []
        cost = BUCKET_COST.get(matrices[0].device.type, BUCKET_COST["cuda"])
        return [[matrices[i] for i in stack] for stack in plan_buckets(tuple(map(matrix_shape, matrices)), cost)]

    def lay_out(self, group: dict[str, Any], members: Sequence[Tensor]) -> FlatGroup:
        """Make the buffers and describe the stacks in them."""
        flat = super().lay_out(group, members)
        if group["muon_weight"]:
            sizes = (sum(p.numel() for p in chunk) for chunk in flat.chunks)
            starts = accumulate(sizes, initial=0)
            zero = flat.update.numel() - 1
            flat.buckets = [
                make_bucket(chunk, start=start, zero=zero, gain=group["muon_weight"])
                for chunk, start in zip(flat.chunks, starts, strict=False)
            ]
            flat.directions = flat.update.new_empty(flat.matrix_elements, dtype=torch.float32)
        return flat

    def update(self, flat: FlatGroup) -> None:
        """Advance the momentum, orthogonalize, mix, let the matrices decay, move the parameters."""
        self.run_part(ORTHOGONALIZATION, flat, self.orthogonalize)
        self.run_part(MOVE, flat, self.move)

    def orthogonalize(self, flat: FlatGroup) -> None:
        """Advance the momentum, and write the orthogonalized directions of the matrices to ``flat.directions``."""
        self.advance_momentum(flat)
        if flat.directions is not None:
            for bucket in flat.buckets:
                bucket.orthogonalize(flat.update, out=flat.directions, steps=flat.group["newton_schulz_steps"])

    def move(self, flat: FlatGroup) -> None:
        """Join plain and orthogonalized directions, let the matrices decay and move all parameters."""
        plain = flat.update[: flat.matrix_elements].mul_(flat.group["sgd_weight"])
        if flat.directions is not None:
            plain.add_(flat.directions)
        self.decay(flat)
        self.apply(flat)
