"""What rules of stage ``setup`` may know about the objects of a fit, in plain words; ``perf.setup`` looks at them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFacts:
    """What is special about a module and what it holds; names, all empty where nothing is.

    Attributes:
        own_forward: modules whose forward was replaced on the instance, or that are compiled.
        hooked: modules and parameters with forward or backward hooks; "every module" for hooks of the process.
        frozen: direct parts without a single trainable parameter.
        shared: parameters that lie in the memory of an earlier one.
        misfits: parameters that are no dense float32 tensors of the device, with what they are.
    """

    own_forward: tuple[str, ...] = ()
    hooked: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    misfits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFacts:
    """What is special about the objects of a fit. The defaults describe one that is as the project builds it.

    Attributes:
        network: the network.
        loss: the objective.
        loss_class: its class.
        loss_is_stock: it is the class that the task makes.
        own_clipping: methods by which the training module clips, where they are not the project's.
        precision_clipping: class of the precision plugin, where it clips in a way of its own; else empty.
        unscales: the optimizer undoes the loss scaling inside its step.
        optimizer_class: class of the optimizer.
        optimizer_is_stock: it is MuSGD, not derived from it.
        optimizer_is_ours: it is one of the project's, not derived from it.
        own_steps: methods that were replaced on the optimizer itself.
        optimizer_hooks: hooks around a step, of the optimizer or of every one of the process.
        optimizer_misfits: parameters of the optimizer that are no dense float32 tensors of the device.
        groups_without_muon: parameter groups with a Muon weight of 0.
        hooks_in_step: methods of callbacks and of the training module that Lightning calls between the start of the
            forward pass and the end of the update, where they are not the project's.
    """

    network: ModuleFacts = field(default_factory=ModuleFacts)
    loss: ModuleFacts = field(default_factory=ModuleFacts)
    loss_class: str = "DetectionLoss"
    loss_is_stock: bool = True
    own_clipping: tuple[str, ...] = ()
    precision_clipping: str = ""
    unscales: bool = False
    optimizer_class: str = "MuSGD"
    optimizer_is_stock: bool = True
    optimizer_is_ours: bool = True
    own_steps: tuple[str, ...] = ()
    optimizer_hooks: tuple[str, ...] = ()
    optimizer_misfits: tuple[str, ...] = ()
    groups_without_muon: tuple[str, ...] = ()
    hooks_in_step: tuple[str, ...] = ()


def first_names(names: tuple[str, ...], limit: int = 3) -> str:
    """Names for a sentence: the first ones, and how many more there are."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")
