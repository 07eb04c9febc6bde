"""The recordings of one fit: made from the options of ``capture``, kept together, closed together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from lucid_yolo.nn.cast import CastOnce
from lucid_yolo.nn.model import Network
from lucid_yolo.nn.parts import Span
from lucid_yolo.optim.flat import FlatOptimizer
from lucid_yolo.optim.musgd import MOVE, ORTHOGONALIZATION
from lucid_yolo.perf.capture.function import FunctionRegion, trained_parameters
from lucid_yolo.perf.capture.gradients import GradientPlaces
from lucid_yolo.perf.capture.handover import Handover
from lucid_yolo.perf.capture.network import NetworkInParts
from lucid_yolo.perf.capture.region import Account, Region
from lucid_yolo.perf.capture.routine import RecordedClip, RecordedParts, RoutineRegion
from lucid_yolo.perf.capture.tape import Tape

TARGETS = 1
"""Position of the targets among the arguments of a loss: their rows may grow."""

GRADIENT_NORM = "gradient_norm"
"""Option of ``capture`` that records clipping."""

OPTIONS_OF_PARTS = {ORTHOGONALIZATION: "orthogonalization", MOVE: "updates"}
"""Option of ``capture`` that records a part of an update."""


class Recorder:
    """Makes recordable parts and keeps them.

    Args:
        tape: records.
        device: of the step.
        parameters: those of the optimizer, in its order; what is frozen now may be trained later.
        warmup: calls before a recording, by option of ``capture``; an option that is not named is not recorded.
    """

    def __init__(
        self, tape: Tape, *, device: torch.device, parameters: Sequence[Tensor], warmup: Mapping[str, int]
    ) -> None:
        self._tape = tape
        self._device = device
        self._warmup = warmup
        self._regions: list[Region] = []
        self._handover = Handover()
        self._optimizer: FlatOptimizer | None = None
        self._gradients = GradientPlaces(parameters)

    def network(self, model: nn.Module, regions: Mapping[str, str] = MappingProxyType({})) -> Callable[..., Any]:
        """The forward and backward pass of a network, called as the network; weights are cast together.

        Args:
            model: the network.
            regions: option of ``capture`` by part of the network, where it is recorded in parts, each with a backward
                pass of its own; empty: it is recorded as a whole.
        """
        if not regions:
            return self._function("network", model, CastOnce(model), gradients=self._gradients)
        if not set(regions.values()) & set(self._warmup):
            return CastOnce(model)
        assert isinstance(model, Network)
        return NetworkInParts(model, lambda part, span: self._part(part, span, regions[part]))

    def loss(self, loss: nn.Module) -> Callable[..., Any]:
        """Assignment and losses with their backward pass, called as the loss; what it returns are copies."""
        gradients = self._gradients if trained_parameters(loss) else None
        return self._function("loss", loss, loss, gradients=gradients, growing=(TARGETS,), hand_out=Tensor.clone)

    def clip(self, otherwise: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """The gradient norm and the scaling by it, called as ``clip_gradients``."""
        if GRADIENT_NORM not in self._warmup:
            return otherwise
        return RecordedClip(self._routine(GRADIENT_NORM), self._gradients)

    def attach(self, optimizer: FlatOptimizer) -> None:
        """Record the parts of an optimizer's update."""
        recorded = {
            part: partial(self._routine, name) for part, name in OPTIONS_OF_PARTS.items() if name in self._warmup
        }
        if recorded:
            optimizer.run_part = RecordedParts(optimizer, recorded)
            self._optimizer = optimizer

    def outcomes(self) -> dict[str, Mapping[str, str | int | float]]:
        """What happened, by row of the plan; parts of one option are added up."""
        merged = {name: Account() for name in self._warmup}
        for region in self._regions:
            merged[region.name] = _sum(merged[region.name], region.account)
        return {f"capture.{name}": account.as_outcome() for name, account in merged.items()}

    def close(self) -> None:
        """Drop every recording and its memory, and leave the optimizer as it was."""
        for region in self._regions:
            region.close()
        if self._optimizer is not None:
            vars(self._optimizer).pop("run_part", None)
            self._optimizer = None

    def _part(self, part: str, span: Span, name: str) -> Callable[..., Any]:
        return self._function(name, span, CastOnce(span), part=part, gradients=self._gradients)

    def _function(
        self, name: str, module: nn.Module, function: Callable[..., Any], **settings: Any
    ) -> Callable[..., Any]:
        if name not in self._warmup:
            return function
        region = FunctionRegion(
            name,
            module,
            function=function,
            tape=self._tape,
            device=self._device,
            warmup=self._warmup[name],
            handover=self._handover,
            **settings,
        )
        self._regions.append(region)
        return region

    def _routine(self, name: str) -> RoutineRegion:
        region = RoutineRegion(name, tape=self._tape, device=self._device, warmup=self._warmup[name])
        self._regions.append(region)
        return region


def _sum(one: Account, other: Account) -> Account:
    return Account(
        recordings=one.recordings + other.recordings,
        replays=one.replays + other.replays,
        native_calls=one.native_calls + other.native_calls,
        native_reason=_joined(one.native_reason, other.native_reason),
        setup_seconds=one.setup_seconds + other.setup_seconds,
        reserved_mib=one.reserved_mib + other.reserved_mib,
        retired=_joined(one.retired, other.retired),
    )


def _joined(one: str, other: str) -> str:
    """Reasons of two, each told once."""
    return "; ".join(dict.fromkeys(reason for reason in (*one.split("; "), other) if reason))
