"""What the optimizers share: flat buffers, hyperparameters on the device, and a switch that skips an update.

Gradients are copied into one flat buffer, the arithmetic runs on it in a handful of launches, and multi-tensor
operations apply the result to the parameters. Nothing reads the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, ClassVar, Protocol, overload

import torch
from torch import Tensor

from lucid_yolo.optim.buckets import Bucket

KEEP = -0.0
"""Adding it changes no number at all, while +0.0 would turn a -0.0 into itself."""


@dataclass
class FlatGroup:
    """The parameters of one group that have a gradient, a device and a type in common.

    Attributes:
        group: the ``param_groups`` entry.
        chunks: parameters of two or more dimensions, in the order of the buffers, divided as the optimizer asked.
        parameters: all parameters in the order of the buffers: matrices, then vectors.
        matrix_elements: elements of the matrices; they come first.
        sizes: (parameters + 1,) int64 elements of every parameter, and 1.
        update: (elements + 1,) buffer of gradients and then updates, every tensor in its own memory order. The last
            element belongs to no parameter and is always zero.
        gradient_views: views of ``update`` with the strides of the gradients.
        update_views: views of ``update`` with the strides of the parameters.
        state: (elements + 1,) buffers by name; ``Optimizer.state`` holds views of them.
        counters: (parameters,) buffers by name, likewise.
        hyperparameters: 0-d tensors by name.
        values: the numbers that the hyperparameters hold.
        buckets: stacks of the matrices, where the optimizer works on stacks.
        directions: (matrix elements,) float32 buffer of what becomes of the stacks, in the order of ``update``.
    """

    group: dict[str, Any]
    chunks: list[list[Tensor]]
    parameters: list[Tensor]
    matrix_elements: int
    sizes: Tensor
    update: Tensor
    gradient_views: list[Tensor]
    update_views: list[Tensor]
    state: dict[str, Tensor]
    counters: dict[str, Tensor]
    hyperparameters: dict[str, Tensor]
    values: dict[str, float | None]
    buckets: list[Bucket] = field(default_factory=list)
    directions: Tensor | None = None

    @property
    def matrices(self) -> list[Tensor]:
        """Parameters of two or more dimensions: only they decay."""
        return [p for chunk in self.chunks for p in chunk]


class PartRunner(Protocol):
    """Runs a part of an update. Whoever records parts puts its own in the place of `run_directly`."""

    def __call__(self, part: str, flat: FlatGroup, function: Callable[[FlatGroup], None]) -> None:
        """Do what ``function(flat)`` does.

        Args:
            part: name of the part.
            flat: the group; the function reads and writes its buffers and parameters in place.
            function: touches device memory only.
        """
        ...


def run_directly(part: str, flat: FlatGroup, function: Callable[[FlatGroup], None]) -> None:
    """Call the function: what a `PartRunner` is unless something records."""
    function(flat)


class FlatOptimizer(torch.optim.Optimizer):
    """Base of the optimizers.

    Attributes:
        run_part: runs the parts that an optimizer divides its update into; not kept by copies.
        update_allowed: 0-d bool tensor on the parameters' device, or None. Where it is False, ``step`` leaves
            parameters and state as they are, bit for bit and whatever the gradients hold, without reading it on the
            host.
    """

    STATE: ClassVar[tuple[str, ...]] = ()
    COUNTERS: ClassVar[tuple[str, ...]] = ()
    HYPERPARAMETERS: ClassVar[tuple[str, ...]] = ("lr", "weight_decay")

    update_allowed: Tensor | None = None
    run_part: PartRunner = staticmethod(run_directly)
    _groups: list[FlatGroup] | None = None
    _signature: object = None

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient.

        Args:
            closure: evaluates the loss again and returns it.

        Raises:
            ValueError: for a sparse gradient, a parameter whose memory has gaps, or one with another shape than its
                state.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for flat in self.flat_groups():
            self.collect(flat)
            self.update(flat)
        return loss

    # The parts of a step, in their order. Each but the first reads and writes device memory only.

    def flat_groups(self) -> list[FlatGroup]:
        """Bring buffers and hyperparameters up to date with the parameters, their gradients and ``param_groups``."""
        signature = [self._fixed(group) + _forms(group["params"]) for group in self.param_groups]
        if self._groups is None or signature != self._signature:
            self._groups = [self.lay_out(*part) for part in self._partition()]
            self._signature = signature
        self.refresh()
        return self._groups

    @property
    def layout(self) -> list[FlatGroup] | None:
        """The buffers as they are; None before the first update and once they have to be made anew."""
        return self._groups

    def refresh(self) -> None:
        """Bring the hyperparameters on the device up to date with ``param_groups``."""
        for flat in self._groups or ():
            for name, value in flat.values.items():
                if flat.group[name] != value:
                    flat.values[name] = flat.group[name]
                    flat.hyperparameters[name].fill_(flat.group[name])

    def fixed_settings(self) -> list[object]:
        """What the host holds of ``param_groups`` beside the hyperparameters on the device."""
        return [setting for group in self.param_groups for setting in self._fixed(group)]

    def collect(self, flat: FlatGroup) -> None:
        """Copy the gradients into the flat buffer."""
        gradients = [p.grad for p in flat.parameters if p.grad is not None]
        torch._foreach_copy_(flat.gradient_views, gradients)

    def update(self, flat: FlatGroup) -> None:
        """Turn the gradients in ``flat.update`` into directions, advance the state on the way, and `apply` them."""
        raise NotImplementedError

    def apply(self, flat: FlatGroup) -> None:
        """Move the parameters by -lr times the directions in ``flat.update``."""
        flat.update.mul_(-flat.hyperparameters["lr"])
        if self.update_allowed is not None:
            flat.update.masked_fill_(~self.update_allowed, KEEP)
        torch._foreach_add_(flat.parameters, flat.update_views)

    def decay(self, flat: FlatGroup) -> None:
        """Shrink the matrices by lr * weight_decay, apart from the gradients (arXiv 1711.05101)."""
        if not flat.matrices:
            return
        keep = 1 - flat.hyperparameters["lr"] * flat.hyperparameters["weight_decay"]
        if self.update_allowed is not None:
            keep = torch.where(self.update_allowed, keep, 1.0)
        torch._foreach_mul_(flat.matrices, keep)

    def advance_momentum(self, flat: FlatGroup) -> None:
        """Turn the gradients g in ``flat.update`` into g + momentum * m, after m <- momentum * m + g."""
        buffer, momentum = flat.state["momentum_buffer"], flat.hyperparameters["momentum"]
        if self.update_allowed is None:
            torch.addcmul(flat.update, buffer, momentum, out=buffer)
        else:
            self.replace(buffer, torch.addcmul(flat.update, buffer, momentum))
        flat.update.addcmul_(buffer, momentum)

    def replace(self, old: Tensor, new: Tensor) -> None:
        """Write ``new`` over a state buffer unless the update is to be skipped."""
        if self.update_allowed is None:
            old.copy_(new)
        else:
            torch.where(self.update_allowed, new, old, out=old)

    # Layout.

    def arrange(self, matrices: list[Tensor]) -> list[list[Tensor]]:
        """Choose the order of the matrices in the buffers."""
        return [matrices]

    def _fixed(self, group: dict[str, Any]) -> list[object]:
        """What a group says beside its parameters and the hyperparameters on the device."""
        live = ("params", *self.HYPERPARAMETERS)
        return [(name, value) for name, value in group.items() if name not in live]

    def _partition(self) -> Iterator[tuple[dict[str, Any], list[Tensor]]]:
        """Divide every group's parameters with gradients by device and type."""
        for group in self.param_groups:
            parts: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    _check_dense(p)
                    parts.setdefault((p.device, p.dtype), []).append(p)
                elif p in self.state:  # views would keep the whole old buffer alive
                    self.state[p] = {name: value.clone() for name, value in self.state[p].items()}
            for parameters in parts.values():
                yield group, parameters

    def lay_out(self, group: dict[str, Any], members: Sequence[Tensor]) -> FlatGroup:
        """Make the buffers of parameters that share device and type, and take over their state.

        Raises:
            ValueError: a parameter has another shape than its state.
        """
        chunks = self.arrange([p for p in members if p.ndim >= 2])
        matrices = [p for chunk in chunks for p in chunk]
        parameters = matrices + [p for p in members if p.ndim < 2]
        like = parameters[0].detach()
        sizes = [p.numel() for p in parameters] + [1]
        strides = [gradient_stride(p, p.grad) for p in parameters if p.grad is not None]
        update, *state = (like.new_zeros(sum(sizes)) for _ in range(1 + len(self.STATE)))
        number = torch.float64 if like.dtype == torch.float64 else torch.float32
        flat = FlatGroup(
            group=group,
            chunks=chunks,
            parameters=parameters,
            matrix_elements=sum(p.numel() for p in matrices),
            sizes=torch.tensor(sizes, device=like.device),
            update=update,
            gradient_views=flat_views(update, parameters, strides),
            update_views=flat_views(update, parameters, [p.stride() for p in parameters]),
            state=dict(zip(self.STATE, state, strict=True)),
            counters={name: like.new_zeros(len(parameters), dtype=number) for name in self.COUNTERS},
            hyperparameters={name: like.new_zeros((), dtype=number) for name in self.HYPERPARAMETERS},
            values=dict.fromkeys(self.HYPERPARAMETERS),
        )
        views = {name: flat_views(b, parameters, [p.stride() for p in parameters]) for name, b in flat.state.items()}
        views |= {name: list(buffer.unbind()) for name, buffer in flat.counters.items()}
        for i, p in enumerate(parameters):
            for name, of_parameters in views.items():
                if name in self.state[p]:
                    if self.state[p][name].shape != of_parameters[i].shape:
                        raise ValueError(
                            f"A parameter has the shape {tuple(p.shape)} now, and its state {name} is of shape "
                            f"{tuple(self.state[p][name].shape)}; make another optimizer for it."
                        )
                    of_parameters[i].copy_(self.state[p][name])
                self.state[p][name] = of_parameters[i]
        return flat

    # Saving and loading, in the layout of torch.optim.

    def state_dict(self) -> dict[str, Any]:
        """State and hyperparameters in plain containers; tensors are copies, one for every parameter."""
        packed = super().state_dict()
        packed["state"] = {
            key: {name: value.clone() for name, value in state.items()} for key, state in packed["state"].items()
        }
        return packed

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._groups = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "update_allowed": self.update_allowed}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, see ``torch.optim.Optimizer``."""
        super().add_param_group(param_group)
        self._groups = None


def _forms(parameters: Sequence[Tensor]) -> list[object]:
    """All that a layout depends on: which parameters have a gradient, and how and where they and it lie in memory.

    Asked in every step for hundreds of parameters, so by functions that need no Python for each. Another device is
    another place in memory, which a recorded update holds.
    """
    gradients = [p.grad for p in parameters]
    held = [gradient for gradient in gradients if gradient is not None]
    which = None if len(held) == len(gradients) else [gradient is None for gradient in gradients]
    try:
        strides = [*map(Tensor.stride, held)]
    except RuntimeError:  # of a sparse gradient, which a new layout refuses by name
        return [object()]
    places = [*map(Tensor.data_ptr, parameters)]
    kinds = [*map(attrgetter("dtype"), parameters)], [*map(Tensor.numel, parameters)]  # with strides also the shapes
    return [which, strides, [*map(Tensor.stride, parameters)], places, kinds]


def gradient_stride(parameter: Tensor, gradient: Tensor) -> tuple[int, ...]:
    """Strides of a gradient where it lies in memory as its parameter does, else those of the parameter.

    They may differ in dimensions of size 1, as those of 1x1 convolutions in channels_last do; multi-tensor operations
    have a fast path only for strides that are the same in every dimension.
    """
    stride = parameter.stride()
    if gradient.stride() == stride:
        return stride
    same = all(s == g for n, s, g in zip(parameter.shape, stride, gradient.stride(), strict=True) if n > 1)
    return gradient.stride() if same else stride


def flat_views(buffer: Tensor, parameters: Sequence[Tensor], strides: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Views of consecutive stretches of a buffer with the shapes of the parameters."""
    views, offset = [], 0
    for p, stride in zip(parameters, strides, strict=True):
        views.append(buffer.as_strided(p.shape, stride, offset))
        offset += p.numel()
    return views


def _check_dense(parameter: Tensor) -> None:
    assert parameter.grad is not None
    if parameter.grad.layout != torch.strided:
        raise ValueError(
            f"A parameter of shape {tuple(parameter.shape)} has a sparse gradient; only dense gradients are supported."
        )
    reach = 1 + sum((n - 1) * s for n, s in zip(parameter.shape, parameter.stride(), strict=True))
    if reach != parameter.numel():
        raise ValueError(
            f"The memory of a parameter of shape {tuple(parameter.shape)} and strides {parameter.stride()} has gaps or"
            " overlaps; make it contiguous before training."
        )
