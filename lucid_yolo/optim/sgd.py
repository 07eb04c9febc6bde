"""SGD with Nesterov momentum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor

from lucid_yolo.optim.flat import FlatGroup, FlatOptimizer


class SGD(FlatOptimizer):
    """``torch.optim.SGD(nesterov=True)`` with weight decay of matrices only: g <- g + weight_decay * W.

    Args:
        params: parameters or groups of them.
        lr: learning rate.
        momentum: Nesterov momentum.
        weight_decay: of parameters of two or more dimensions.
    """

    STATE: ClassVar[tuple[str, ...]] = ("momentum_buffer",)
    HYPERPARAMETERS: ClassVar[tuple[str, ...]] = ("lr", "weight_decay", "momentum")

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        lr: float,
        momentum: float = 0.937,
        weight_decay: float = 5e-4,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    def update(self, flat: FlatGroup) -> None:
        """Add the decay to the gradients, advance the momentum, move the parameters."""
        matrices = flat.matrices
        if matrices:
            decays = torch._foreach_mul(matrices, flat.hyperparameters["weight_decay"])
            torch._foreach_add_(flat.update_views[: len(matrices)], decays)
        self.advance_momentum(flat)
        self.apply(flat)
