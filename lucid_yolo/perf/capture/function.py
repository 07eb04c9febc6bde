"""Recording of a differentiable function: its forward and its backward pass as two tracks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lucid_yolo.config.errors import RunError
from lucid_yolo.perf.capture.gradients import GradientPlaces
from lucid_yolo.perf.capture.region import MAX_RECORDINGS, Region, kept
from lucid_yolo.perf.capture.tape import Tape, Track
from lucid_yolo.perf.capture.values import Rebuild, fill, flatten, itself
from lucid_yolo.perf.capture.watch import ModuleWatch


class FunctionRegion(Region):
    """A function of a module that is called once a step, recorded at its first call.

    Args:
        name: option of ``capture`` that switches it on.
        module: whose parameters, buffers and settings the function reads; a recording ends when they change.
        function: maps nested tensors to nested tensors; reads nothing back and has no shape that depends on data.
            Default: the module.
        tape: records.
        device: of the step.
        warmup: calls before a recording.
        part: which of those that the option records, for messages; empty: the only one.
        gradients: places for the gradients of the module's parameters; None where it has none.
        growing: positions of the arguments whose tensors may be shorter in their first dimension than those recorded:
            they are filled up with zeros, and a longer one is recorded anew.
        hand_out: what the caller receives of a fixed output: a view of it, or a copy.
        stay: addresses of fixed outputs, shared by the regions of a fit: an argument that is one needs no copy.
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        *,
        function: Callable[..., Any] | None = None,
        tape: Tape,
        device: torch.device,
        warmup: int,
        part: str = "",
        gradients: GradientPlaces | None = None,
        growing: Sequence[int] = (),
        hand_out: Callable[[Tensor], Tensor] = Tensor.detach,
        stay: set[int] | None = None,
    ) -> None:
        super().__init__(name, tape, device=device, warmup=warmup, part=part)
        self.module = module
        self.function: Callable[..., Any] = function or module
        self.gradients = gradients
        self.growing = frozenset(growing)
        self.hand_out = hand_out
        self.stay = set() if stay is None else stay
        self._watch: ModuleWatch | None = None
        self._recording: FunctionRecording | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Do what the function does, recorded where that is possible."""
        tensors, _ = flatten(arguments)
        if self._watch is not None and (difference := self._watch.difference()) is not None:
            self.retire(difference)
        fit = Fit.OUTGROWN if self._recording is None else self._recording.call.fit(tensors)
        reason = self.ended or self._why_native(fit, tensors)
        if reason:
            self.native(reason)
            return self.function(*arguments)
        if fit is Fit.OUTGROWN:
            self._record(arguments)
        assert self._recording is not None
        self.account.replays += 1
        return self._recording(tensors)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as the function: recordings belong to one fit."""
        return itself, (self.function,)

    def keep(self, tensor: Tensor) -> Tensor:
        """Memory for an argument: its own where that is a fixed output, else a copy."""
        fixed = tensor.detach()
        return fixed if tensor.data_ptr() in self.stay else fixed.clone()

    def release(self) -> None:
        """Drop the recording."""
        self._recording = None
        self._watch = None

    def _why_native(self, fit: Fit, tensors: Sequence[Tensor]) -> str | None:
        """Say why a call cannot be recorded or replayed; None: it can."""
        if not torch.is_grad_enabled():
            return "gradients are switched off"
        if self.on_other_stream():
            return "another stream is current"
        if self._recording is None:
            return self._why_unrecorded(tensors)
        if self._recording.autocast != Autocast.current(self.device):
            self.retire("the precision changed")
        elif fit is Fit.OUTGROWN and self.account.recordings == MAX_RECORDINGS:
            self.retire(f"its inputs outgrew {MAX_RECORDINGS} recordings")
        elif fit is Fit.OTHER:
            return "inputs of another shape, type or layout"
        return self.account.retired or None

    def _why_unrecorded(self, tensors: Sequence[Tensor]) -> str | None:
        """Say why there is nothing to replay and nothing to record; None: it can be recorded."""
        if not self.module.training:
            return "evaluation mode"
        trained = trained_parameters(self.module)
        if not trained and not any(tensor.requires_grad for tensor in tensors):
            return "nothing that it computes has a gradient"
        if self.gradients is not None and not self.gradients.include(trained):
            self.retire("a trainable parameter was not in the optimizer at the start")
        return self.account.retired or None

    def _record(self, arguments: Sequence[Any]) -> None:
        self._recording = None  # its memory may serve the next one
        with self.recording(), kept(self.module.buffers()):
            self._recording = FunctionRecording(self, Call.of(arguments, self.growing))
            self._watch = ModuleWatch(self.module)


class Fit(Enum):
    """How a call fits into a recording."""

    HELD = auto()
    OUTGROWN = auto()  # it would fit but for the length of what may grow
    OTHER = auto()


class Call:
    """The arguments of one call as a list of tensors.

    Attributes:
        tensors: all of them, in order.
        rebuild: arguments of the same form from other tensors.
        grows: for each tensor whether its first dimension may be filled up.
    """

    def __init__(self, tensors: list[Tensor], rebuild: Rebuild, grows: list[bool]) -> None:
        self.tensors = tensors
        self.rebuild = rebuild
        self.grows = grows

    @classmethod
    def of(cls, arguments: Sequence[Any], growing: frozenset[int]) -> Call:
        """Take arguments apart."""
        tensors, rebuild = flatten(tuple(arguments))
        grows = [position in growing for position, a in enumerate(arguments) for _ in flatten(a)[0]]
        return cls(tensors, rebuild, grows)

    def fit(self, others: Sequence[Tensor]) -> Fit:
        """How the tensors of another call fit into the memory of this one."""
        if len(self.tensors) != len(others):
            return Fit.OTHER
        outgrown = False
        for mine, given, grows in zip(self.tensors, others, self.grows, strict=True):
            if given.dtype != mine.dtype or given.device != mine.device or given.requires_grad != mine.requires_grad:
                return Fit.OTHER
            if grows:
                if given.shape[1:] != mine.shape[1:] or given.stride()[1:] != mine.stride()[1:]:
                    return Fit.OTHER
                outgrown = outgrown or len(given) > len(mine)
            elif given.shape != mine.shape or given.stride() != mine.stride():
                return Fit.OTHER
        return Fit.OUTGROWN if outgrown else Fit.HELD


class FunctionRecording:
    """Fixed memory and two tracks of one function.

    Args:
        region: whose function it is.
        call: the first arguments.

    Attributes:
        call: fixed copies of them.
        autocast: arithmetic of the forward pass.
    """

    def __init__(self, region: FunctionRegion, call: Call) -> None:
        self.region = region
        self.autocast = Autocast.current(region.device)
        fixed = [region.keep(t).requires_grad_(t.requires_grad) for t in call.tensors]
        self.call = Call(fixed, call.rebuild, call.grows)
        self.generation = 0
        self._live: list[Tensor] = []
        self._rebuild: Rebuild | None = None
        self._trained: list[Tensor] = trained_parameters(region.module)
        self._written: tuple[int, ...] = ()
        self._anchor = torch.zeros((), device=region.device, requires_grad=True)
        region.tape.rehearse(self._rehearse, region.warmup)
        self._live = []  # with it go the activations of the rehearsal
        self._forward: Track = region.tape.record(self._run_forward)
        region.stay.update(output.data_ptr() for output in self._forward.outputs)
        self._fixed_gradients = [torch.zeros_like(o) if o.requires_grad else None for o in self._live]
        self._backward: Track = region.tape.record(self._run_backward)

    def __call__(self, tensors: Sequence[Tensor]) -> Any:
        """Replay the forward pass for other arguments."""
        outputs = _Replay.apply(self, self._anchor, *tensors)  # type: ignore[no-untyped-call]
        assert self._rebuild is not None
        return self._rebuild(outputs)

    def forward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Copy arguments in, replay, and hand the outputs out."""
        self.generation += 1
        fill(self.call.tensors, tensors)
        self._forward.replay()
        return [self.region.hand_out(output) for output in self._forward.outputs]

    def differentiable(self) -> list[bool]:
        """For each output whether it has a gradient."""
        return [gradient is not None for gradient in self._fixed_gradients]

    def backward(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Copy gradients of the outputs in, replay, give parameters theirs and return those of the arguments."""
        fixed, given = [], []
        for place, gradient in zip(self._fixed_gradients, gradients, strict=True):
            if place is not None and gradient is not None:
                fixed.append(place)
                given.append(gradient)
            elif place is not None:
                place.zero_()
        fill(fixed, given)
        places = self.region.gradients
        before = places.set_aside(self._written) if places is not None else None
        self._backward.replay()
        if places is not None:
            places.hand_out(self._written, before)
        found = iter(self._backward.outputs)
        return [next(found).detach() if t.requires_grad else None for t in self.call.tensors]

    def _rehearse(self) -> None:
        self._live = []  # of the rehearsal before, with its activations
        self._run_forward()
        self._differentiate([torch.zeros_like(o) for o in self._live if o.requires_grad], retain_graph=False)

    def _run_forward(self) -> list[Tensor]:
        with torch.enable_grad(), self.autocast.entered():
            value = self.region.function(*self.call.rebuild(self.call.tensors))
        self._live, self._rebuild = flatten(value)
        return self._live

    def _run_backward(self) -> list[Tensor]:
        # The saved tensors stay: tracks that are recorded later must not lie in their memory.
        found = self._differentiate([g for g in self._fixed_gradients if g is not None], retain_graph=True)
        sources = self._sources()
        count = len(sources) - len(self._trained)
        self._write(found[count:])
        zeros = (torch.zeros_like(s) for s in sources[:count])
        return [z if g is None else g for g, z in zip(found[:count], zeros, strict=True)]

    def _differentiate(self, gradients: Sequence[Tensor], *, retain_graph: bool) -> Sequence[Tensor | None]:
        """Gradients of the arguments and parameters, outside autocast as in a step."""
        outputs = [output for output in self._live if output.requires_grad]
        with torch.autocast(self.region.device.type, enabled=False):
            return torch.autograd.grad(
                outputs, self._sources(), gradients, allow_unused=True, retain_graph=retain_graph
            )

    def _write(self, found: Sequence[Tensor | None]) -> None:
        """Bring the gradients of the parameters to their places."""
        places = self.region.gradients
        if places is None:
            return
        position = {id(p): i for i, p in enumerate(places.parameters)}
        pairs = [(position[id(p)], g) for p, g in zip(self._trained, found, strict=True) if g is not None]
        self._written = tuple(i for i, _ in pairs)
        gradients = [g for _, g in pairs]
        if gradients:
            with torch.no_grad():
                torch._foreach_copy_(places.fit(self._written, gradients), gradients)

    def _sources(self) -> list[Tensor]:
        return [t for t in self.call.tensors if t.requires_grad] + self._trained


class _Replay(torch.autograd.Function):
    """Puts a recording into the graph of the step."""

    @staticmethod
    def forward(ctx: Any, recording: FunctionRecording, anchor: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        outputs = recording.forward(tensors)
        ctx.recording, ctx.generation = recording, recording.generation
        ctx.set_materialize_grads(False)
        flags = recording.differentiable()
        ctx.mark_non_differentiable(*[o for o, flag in zip(outputs, flags, strict=True) if not flag])
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if ctx.generation != ctx.recording.generation:
            raise RunError(
                f"capture={ctx.recording.region.name}: a backward pass came after a later forward pass, whose values "
                "have taken the place of its own. Leave that part out of capture=... for such a training step."
            )
        return (None, None, *ctx.recording.backward(gradients))


class Autocast:
    """The arithmetic that autocast sets."""

    def __init__(self, device_type: str, dtype: torch.dtype, *, enabled: bool) -> None:
        self._key = (device_type, dtype, enabled)

    @classmethod
    def current(cls, device: torch.device) -> Autocast:
        """Read it where the call is made."""
        kind = device.type
        return cls(kind, torch.get_autocast_dtype(kind), enabled=torch.is_autocast_enabled(kind))

    def entered(self) -> torch.autocast:
        """The same without its cache: cast weights would outlive the recording that made them."""
        kind, dtype, enabled = self._key
        return torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Autocast) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def trained_parameters(module: nn.Module) -> list[Tensor]:
    """Parameters of a module that have a gradient."""
    return [p for p in module.parameters() if p.requires_grad]
