"""AdamW."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor

from lucid_yolo.optim.flat import FlatGroup, FlatOptimizer


class AdamW(FlatOptimizer):
    """``torch.optim.AdamW`` (arXiv 1711.05101) with weight decay of matrices only.

    Args:
        params: parameters or groups of them.
        lr: learning rate.
        betas: decay rates of the first and second moment.
        eps: added to the root of the second moment.
        weight_decay: of parameters of two or more dimensions.
    """

    STATE: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq")
    COUNTERS: ClassVar[tuple[str, ...]] = ("step",)

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 5e-4,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def update(self, flat: FlatGroup) -> None:
        """Advance moments and counters, divide, let the matrices decay, move the parameters."""
        (beta1, beta2), eps = flat.group["betas"], flat.group["eps"]
        mean, square, step = flat.state["exp_avg"], flat.state["exp_avg_sq"], flat.counters["step"]
        self.replace(step, step + 1)
        self.replace(mean, mean.lerp(flat.update, 1 - beta1))
        self.replace(square, (square * beta2).addcmul_(flat.update, flat.update, value=1 - beta2))
        root = square.sqrt().div_(self._spread(flat, _bias_correction(step, beta2).sqrt())).add_(eps)
        torch.div(mean, root.mul_(self._spread(flat, _bias_correction(step, beta1))), out=flat.update)
        self.decay(flat)
        self.apply(flat)

    def _spread(self, flat: FlatGroup, of_parameters: Tensor) -> Tensor:
        """Repeat one number a parameter (parameters,) over its elements, and 1 over the last: (elements + 1,)."""
        padded = torch.cat((of_parameters, of_parameters.new_ones(1))).to(flat.update.dtype)
        return padded.repeat_interleave(flat.sizes, output_size=flat.update.numel())


def _bias_correction(step: Tensor, beta: float) -> Tensor:
    """1 - beta ** step without the cancellation that a power near 1 brings in float32."""
    return -torch.expm1(step * (math.log(beta) if beta else -math.inf))
