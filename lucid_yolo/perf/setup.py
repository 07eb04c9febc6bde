"""Judges what was built: the rules that a configuration and a machine cannot decide, before the first step.

Callbacks and users' code may have put hooks on the network, frozen a part of it or replaced a method. A flag that
cannot work with that falls back here, with its reason in the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import lightning as L
import torch
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules
from torch.optim import optimizer as torch_optimizers

from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.schema import OnUnmet, RootConfig
from lucid_yolo.data.labels.base import spec_without_data
from lucid_yolo.optim.adamw import AdamW
from lucid_yolo.optim.musgd import MuSGD
from lucid_yolo.optim.sgd import SGD
from lucid_yolo.perf.flag import Flag, find_flags
from lucid_yolo.perf.live import LiveFacts, ModuleFacts
from lucid_yolo.perf.plan import PlanRow, RunPlan, explain
from lucid_yolo.perf.rules import Facts, Rule, Stage
from lucid_yolo.tasks import get_task

CLIPPING = ("configure_gradient_clipping", "clip_gradients")
IN_STEP = ("on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step")
"""Hooks that callbacks and modules have in common and that Lightning calls inside a step."""
OF_MODULE = ("training_step", "backward", "optimizer_zero_grad", "optimizer_step", *CLIPPING)
"""Methods of a module that Lightning calls inside a step."""
PLUGIN_CLIPPING = ("clip_gradients", "clip_grad_by_norm", "clip_grad_by_value")
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
TENSOR_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
EVERY = "every module"


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The objects of a fit.

    Attributes:
        config: what they were built from.
        network: the network.
        loss: its objective.
        optimizer: without Lightning's wrapper.
        module: the Lightning module.
        module_class: the project's own class of Lightning modules.
        callbacks: of the fit, the user's among them.
        precision: Lightning's precision plugin.
        device: what the step computes on.
    """

    config: RootConfig
    network: nn.Module
    loss: nn.Module
    optimizer: torch.optim.Optimizer
    module: object
    module_class: type
    callbacks: Sequence[L.Callback]
    precision: Precision
    device: torch.device


def judge_setup(plan: RunPlan, built: Built, *, flags: Sequence[Flag] | None = None) -> RunPlan:
    """Let the flags fall back that cannot work with what was built. Call it once, before the first step.

    Args:
        plan: of ``resolve``.
        built: the objects of the fit.
        flags: every flag of the package unless given.

    Returns:
        the plan; one UserWarning names the rows that fell back here.

    Raises:
        ConfigError: with ``on_unmet=raise`` every broken rule, together.
    """
    active = [flag for flag in (find_flags() if flags is None else flags) if plan[flag.key].active != flag.fallback]
    judged = {flag.key: (flag, rules) for flag in active if (rules := _of_setup(flag))}
    if not judged:
        return plan
    facts = Facts(config=built.config, machine=plan.machine, data=None, live=describe(built))
    broken = {key: (flag, those) for key, (flag, rules) in judged.items() if (those := _broken(rules, facts))}
    if broken and built.config.on_unmet is OnUnmet.RAISE:
        raise ConfigError([explain(rule, facts) for _, rules in broken.values() for rule in rules])
    rows = (_fallen(row, *broken[row.key], facts) if row.key in broken else row for row in plan.rows)
    found = replace(plan, rows=tuple(rows))
    found.warn(since=plan)
    return found


def _of_setup(flag: Flag) -> tuple[Rule, ...]:
    return tuple(rule for rule in flag.rules if rule.stage is Stage.SETUP)


def _broken(rules: Sequence[Rule], facts: Facts) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if rule.applies(facts))


def _fallen(row: PlanRow, flag: Flag, rules: Sequence[Rule], facts: Facts) -> PlanRow:
    return replace(row, active=flag.fallback, reason=rules[0].explain(facts), rule_id=rules[0].id)


def describe(built: Built) -> LiveFacts:
    """Look at the objects of a fit for everything that a rule asks about."""
    task = get_task(built.config.task.name)
    with torch.random.fork_rng(devices=[]):  # random numbers belong to the run
        stock_loss = task.build_loss(built.config.task, spec_without_data(task.labels, 1), built.config.data.image_size)
    return LiveFacts(
        network=describe_module(built.network, built.device),
        loss=describe_module(built.loss, built.device),
        loss_class=type(built.loss).__name__,
        loss_is_stock=type(built.loss) is type(stock_loss),
        own_clipping=tuple(_replaced(built.module, CLIPPING, [built.module_class])),
        precision_clipping="" if clips_as_stock(built.precision) else type(built.precision).__name__,
        unscales=bool(getattr(built.optimizer, "_step_supports_amp_scaling", False)),
        optimizer_class=type(built.optimizer).__name__,
        optimizer_is_stock=type(built.optimizer) is MuSGD,
        optimizer_is_ours=type(built.optimizer) in (MuSGD, SGD, AdamW),
        own_steps=tuple(n for n in vars(built.optimizer) if callable(getattr(type(built.optimizer), n, None))),
        optimizer_hooks=tuple(_optimizer_hooks(built.optimizer)),
        optimizer_misfits=tuple(_misfits(_named(built.optimizer), built.device)),
        groups_without_muon=tuple(
            f"group {i}" for i, group in enumerate(built.optimizer.param_groups) if not group.get("muon_weight", 1)
        ),
        hooks_in_step=tuple(
            dict.fromkeys(
                (
                    *_replaced(built.module, (*OF_MODULE, *IN_STEP), [built.module_class]),
                    *(name for callback in built.callbacks for name in _replaced(callback, IN_STEP, [L.Callback])),
                )
            )
        ),
    )


def describe_module(module: nn.Module, device: torch.device) -> ModuleFacts:
    """Look at a module and everything in it.

    Args:
        module: a network or a loss.
        device: where its parameters should lie.
    """
    return ModuleFacts(
        own_forward=tuple(name or "itself" for name, part in module.named_modules() if has_own_forward(part)),
        hooked=tuple(_hooked(module)),
        frozen=tuple(
            name
            for name, part in module.named_children()
            if (parameters := list(part.parameters())) and not any(p.requires_grad for p in parameters)
        ),
        shared=tuple(_shared(module)),
        misfits=tuple(_misfits(module.named_parameters(), device)),
    )


def has_own_forward(module: nn.Module) -> bool:
    """Whether a module does not run the forward of its class: replaced on the instance, or compiled in either way."""
    return "forward" in vars(module) or vars(module).get("_compiled_call_impl") is not None


def clips_as_stock(precision: Precision) -> bool:
    """Whether a precision plugin, whatever its class, clips by the functions of Lightning's own."""
    return not any(_replaced(precision, PLUGIN_CLIPPING, [Precision, MixedPrecision]))


def _replaced(instance: object, names: Iterable[str], stock: Sequence[type]) -> Iterator[str]:
    """Methods that are not the functions of the stock classes, on the instance or on its class."""
    for name in names:
        if name in vars(instance) or getattr(type(instance), name) not in [getattr(cls, name) for cls in stock]:
            yield f"{type(instance).__name__}.{name}"


def _hooked(module: nn.Module) -> Iterator[str]:
    if any(getattr(torch_modules, f"_global{name}") for name in HOOKS):
        yield EVERY
    for name, part in module.named_modules():
        if any(getattr(part, hooks) for hooks in HOOKS):
            yield name or "itself"
    for name, parameter in module.named_parameters():
        if any(getattr(parameter, hooks, None) for hooks in TENSOR_HOOKS):
            yield name


def _optimizer_hooks(optimizer: torch.optim.Optimizer) -> Iterator[str]:
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        yield "hooks of this optimizer"
    if torch_optimizers._global_optimizer_pre_hooks or torch_optimizers._global_optimizer_post_hooks:
        yield "hooks of every optimizer"


def _shared(module: nn.Module) -> Iterator[str]:
    """Parameters under a second name, and those that lie in the memory of another."""
    seen: set[int] = set()
    for name, parameter in module.named_parameters(remove_duplicate=False):
        place = parameter.untyped_storage().data_ptr()
        if place in seen and parameter.numel():
            yield name
        seen.add(place)


def _named(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor]]:
    for i, group in enumerate(optimizer.param_groups):
        for j, parameter in enumerate(group["params"]):
            yield f"parameter {j} of group {i}", parameter


def _misfits(named: Iterable[tuple[str, Tensor]], device: torch.device) -> Iterator[str]:
    for name, p in named:
        if type(p) not in (nn.Parameter, Tensor):
            yield f"{name} of class {type(p).__name__}"
        elif p.layout != torch.strided or p.dtype != torch.float32 or not _lies_on(p, device):
            yield f"{name} ({str(p.dtype).removeprefix('torch.')}, {str(p.layout).removeprefix('torch.')}, {p.device})"


def _lies_on(tensor: Tensor, device: torch.device) -> bool:
    return tensor.device.type == device.type and device.index in (None, tensor.device.index)
