"""Recording of functions that work in place: the gradient norm and the parts of an update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lucid_yolo.optim.clip import clip_gradients, clip_tensors
from lucid_yolo.optim.flat import FlatGroup, FlatOptimizer, run_directly
from lucid_yolo.perf.capture.gradients import GradientPlaces
from lucid_yolo.perf.capture.region import MAX_RECORDINGS, Region, kept
from lucid_yolo.perf.capture.tape import Tape, Track
from lucid_yolo.perf.capture.values import itself


@dataclass(frozen=True)
class _Routine:
    """A recorded function.

    Attributes:
        owner: what it was recorded for; the same object means the same memory.
        baked: values that the recording holds.
        track: the recording.
    """

    owner: object
    baked: tuple[object, ...]
    track: Track


class RoutineRegion(Region):
    """One function of fixed memory."""

    def __init__(self, name: str, *, tape: Tape, device: torch.device, warmup: int) -> None:
        super().__init__(name, tape, device=device, warmup=warmup)
        self._routine: _Routine | None = None

    def run(
        self,
        owner: object,
        baked: tuple[object, ...],
        function: Callable[[], Sequence[Tensor]],
        *,
        changes: Callable[[], Sequence[Tensor]],
    ) -> Sequence[Tensor]:
        """Do what a function does, recorded where that is possible.

        Args:
            owner: holds the memory that the function works on; another one is recorded anew.
            baked: values that the recording holds; others are recorded anew.
            function: returns tensors, or an empty sequence.
            changes: what the function changes in place; put back after the rehearsal.

        Returns:
            The function's tensors; of a recording, good until its next replay.
        """
        known = self._routine is not None and self._routine.owner is owner and self._routine.baked == baked
        if not known and self.account.recordings == MAX_RECORDINGS:
            self.retire(f"what it works on changed more than {MAX_RECORDINGS} times")
        reason = self.ended or ("another stream is current" if self.on_other_stream() else "")
        if reason:
            self.native(reason)
            return function()
        if not known:
            self._record(owner, baked, function, changes())
        assert self._routine is not None
        self.account.replays += 1
        self._routine.track.replay()
        return self._routine.track.outputs

    def release(self) -> None:
        """Drop the recording."""
        self._routine = None

    def _record(
        self,
        owner: object,
        baked: tuple[object, ...],
        function: Callable[[], Sequence[Tensor]],
        changes: Sequence[Tensor],
    ) -> None:
        self._routine = None
        with self.recording(), kept(changes):
            self.tape.rehearse(function, self.warmup)
            self._routine = _Routine(owner, baked, self.tape.record(function))


class RecordedClip:
    """The gradient norm and the scaling by it, recorded; called as ``clip_gradients``.

    The recording clips what is at the places of the gradients. Gradients that lie elsewhere are copied there and back
    and stay where they are: two launches instead of a new ``Parameter.grad`` for each.

    Args:
        region: keeps the recording.
        gradients: places of all gradients that are clipped.
    """

    def __init__(self, region: RoutineRegion, gradients: GradientPlaces) -> None:
        self._region = region
        self._gradients = gradients

    @torch.no_grad()
    def __call__(self, parameters: Sequence[Tensor], max_norm: float | None) -> Tensor:
        """Clip in place and return the 0-d norm before; see ``clip_gradients``."""
        if max_norm is None or max_norm <= 0:
            self._region.native("clipping is switched off")
            return clip_gradients(parameters, max_norm)
        gradients = self._gradients
        if not self._region.ended and not gradients.are_of(parameters):
            self._region.retire("the optimizer has other parameters than at the start")
        if self._region.ended:
            self._region.native(self._region.ended)
            return clip_gradients(parameters, max_norm)
        gathered = gradients.gather()
        if not any(gathered.connected):
            self._region.native("no parameter has a gradient")
            return clip_gradients(parameters, max_norm)
        found = self._region.run(
            gradients,
            (max_norm, gathered.connected),
            lambda: [clip_tensors(gradients.of(gathered.connected), max_norm)],
            changes=lambda: [gradients.flat],
        )
        gathered.give_back()
        return found[0].clone()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as clipping without a recording: that belongs to one fit."""
        return itself, (clip_gradients,)


class RecordedParts:
    """Runs the parts of an update, some of them recorded, for each group of parameters; a ``PartRunner``.

    Args:
        optimizer: whose groups and whose switch of an update the recordings keep.
        recorded: makes what records a part, by name of the part.
    """

    def __init__(self, optimizer: FlatOptimizer, recorded: Mapping[str, Callable[[], RoutineRegion]]) -> None:
        self._optimizer = optimizer
        self._recorded = recorded
        self._regions: dict[tuple[str, int], RoutineRegion] = {}

    def __call__(self, part: str, flat: FlatGroup, function: Callable[[FlatGroup], None]) -> None:
        """Run one part."""
        if part in self._recorded:
            self._run_recorded(part, flat, function)
        else:
            run_directly(part, flat, function)

    def _run_recorded(self, part: str, flat: FlatGroup, function: Callable[[FlatGroup], None]) -> None:
        def work() -> Sequence[Tensor]:
            function(flat)
            return ()

        # Groups are known by their place: loading a state makes others, which are recorded instead.
        place = next(i for i, group in enumerate(self._optimizer.param_groups) if group is flat.group)
        if (part, place) not in self._regions:
            self._regions[part, place] = self._recorded[part]()
        region, switch = self._regions[part, place], self._optimizer.update_allowed
        region.run(
            flat,  # another one once a parameter lies elsewhere
            (function, None if switch is None else switch.data_ptr()),
            work,
            changes=lambda: [flat.update, *flat.state.values(), *flat.counters.values(), *flat.parameters],
        )
