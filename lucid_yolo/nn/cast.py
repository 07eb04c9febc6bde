"""Weights in the precision of autocast, cast all at once.

Autocast casts the weight of every layer by a kernel of its own and brings its gradient back by another: some 280
launches in a training step of the smallest network, each shorter than its launch. Autocast leaves a weight alone that
has its type already, so one multi-tensor copy before the forward pass and one in the backward pass do the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules import module as global_hooks

from lucid_yolo.nn.depthwise import DepthwiseConv2d
from lucid_yolo.ops.memory import aligned_starts

LAYERS = (nn.Conv2d, nn.Linear, DepthwiseConv2d)
"""Classes, without their subclasses, that take weight and bias in the type of autocast as they are."""


class CastOnce:
    """Calls a network, or a part of one, whose weights autocast need not cast: the same numbers from fewer kernels.

    It steps in for training passes under autocast only. A network with forward hooks is called as it is, for hooks
    may look at weights. Layers that come into the network later, and those of other classes, are left to autocast.

    Args:
        network: maps tensors, such as images (B, 3, S, S), to others; stays what it is, with its parameters, outside of
            a call.
    """

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        modules = list(network.modules())
        self._hooks = [hooks for m in modules for hooks in (m._forward_hooks, m._forward_pre_hooks)]
        self._layers = [m for m in modules if type(m) in LAYERS]

    def __call__(self, *inputs: Any) -> Any:
        """Do what the network does.

        Args:
            inputs: tensors and sequences of tensors, on the device of the network.

        Returns:
            What the network returns.
        """
        device = _first(inputs).device
        if not self._steps_in(device.type):
            return self.network(*inputs)
        held = self._find_held(device)
        weights = [weight for _, _, weight in held]
        dtype = torch.get_autocast_dtype(device.type)
        casts: tuple[Tensor, ...] = _Cast.apply(dtype, *weights)  # type: ignore[no-untyped-call]
        # Layers that share a weight share its cast, as from autocast's cache: their gradients are added in that type.
        cast_of = dict(zip(weights, casts, strict=True))
        try:
            for parameters, name, weight in held:
                parameters[name] = cast_of[weight]
            return self.network(*inputs)
        finally:
            for parameters, name, weight in held:
                parameters[name] = weight

    def _steps_in(self, device_type: str) -> bool:
        return (
            self.network.training
            and torch.is_grad_enabled()
            and torch.is_autocast_enabled(device_type)
            and not any(self._hooks)
            and not global_hooks._has_any_global_hook()  # type: ignore[no-untyped-call]
        )

    def _find_held(self, device: torch.device) -> list[tuple[dict[str, Any], str, Tensor]]:
        """What is cast, and where layers keep it: their dictionary, its key, the parameter."""
        return [
            (layer._parameters, name, weight)
            for layer in self._layers
            if "forward" not in layer.__dict__
            for name, weight in layer._parameters.items()
            if type(weight) is nn.Parameter and weight.dtype == torch.float32 and weight.device == device
        ]


class _Cast(torch.autograd.Function):
    """All float32 weights in another type, and their gradients back in float32."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        casts = _copy_as(dtype, list(weights))
        ctx.mark_non_differentiable(*[c for c, w in zip(casts, weights, strict=True) if not w.requires_grad])
        return tuple(casts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        found = iter(_copy_as(torch.float32, [g for g in gradients if g is not None]))
        return (None, *(None if g is None else next(found) for g in gradients))


def _copy_as(dtype: torch.dtype, tensors: list[Tensor]) -> list[Tensor]:
    """Copy tensors of one device into one buffer of another type, each in its own memory order."""
    if not tensors:
        return []
    starts, stop = aligned_starts(tensors)
    flat = torch.empty(stop, dtype=dtype, device=tensors[0].device)
    copies = [
        flat.as_strided(t.shape, t.stride(), start) if _is_dense(t) else torch.empty_like(t, dtype=dtype)
        for t, start in zip(tensors, starts, strict=True)
    ]
    torch._foreach_copy_(copies, tensors)
    return copies


def _first(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else _first(value[0])


def _is_dense(tensor: Tensor) -> bool:
    return tensor.is_contiguous() or tensor.is_contiguous(memory_format=torch.channels_last)
