"""``capture``: regions of the training step that are recorded as CUDA graphs and replayed, one row a region.

A recording plays back kernels on fixed addresses. What runs on the host in between (hooks, replaced methods) would
silently stop happening, and memory that is not the project's own may move; the rules of stage ``setup`` look for both.
There is no rule about bf16 on old releases of torch: ``precision`` itself falls back there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from lucid_yolo.config.regions import REGIONS
from lucid_yolo.config.schema import CompileName, MuSGDConfig, RegionConfig
from lucid_yolo.config.tasks import TaskName
from lucid_yolo.perf.flag import Choice, Flag
from lucid_yolo.perf.live import LiveFacts, ModuleFacts, first_names
from lucid_yolo.perf.rules import Facts, Kind, Rule, Stage, needs_cuda

NORM_TORCH = (2, 9)  # first release whose final build splits clipping into a norm and a scaling
SUMMARIES = {
    "network": "Replays forward and backward of the network (segment: of backbone and neck).",
    "heads": "Replays forward and backward of each group of predictions of the segmentation head.",
    "loss": "Replays assignment and losses, forward and backward.",
    "gradient_norm": "Replays the norm of all gradients and the clipping by it.",
    "orthogonalization": "Replays the momentum of MuSGD and its orthogonalization.",
    "updates": "Replays the rest of MuSGD's update: mixing, decay and the move of the weights.",
}


def settings_of(facts: Facts, region: str) -> RegionConfig:
    """What the configuration says about a region."""
    settings: RegionConfig = getattr(facts.config.capture, region)
    return settings


def _rule(
    region: str,
    name: str,
    *,
    stage: Stage,
    applies: Callable[[Facts], bool],
    sentence: str,
    kind: Kind = Kind.FALLBACK,
    found: Callable[[LiveFacts], tuple[str, ...]] = lambda live: (),
) -> Rule:
    """A rule of a region; it applies only where the region is selected.

    Args:
        region: its name.
        name: of the rule, without that of the flag.
        stage: what it has to know.
        applies: whether the region cannot be had.
        sentence: what the user reads; ``{found}`` are the names that ``found`` gives.
        kind: refuse or fall back.
        found: what was found on the objects of a fit.
    """
    return Rule(
        id=f"capture.{region}.{name}",
        stage=stage,
        kind=kind,
        applies=lambda facts: settings_of(facts, region).selected and applies(facts),
        sentence=sentence,
        words=lambda facts: {"found": first_names(found(_live(facts)))} if stage is Stage.SETUP else {},
    )


def setup_rule(region: str, name: str, found: Callable[[LiveFacts], tuple[str, ...]], sentence: str) -> Rule:
    """A rule that applies where something is found on the objects of a fit."""
    return _rule(
        region,
        name,
        stage=Stage.SETUP,
        applies=lambda facts: bool(found(_live(facts))),
        sentence=f"capture={region} {sentence}",
        found=found,
    )


def _live(facts: Facts) -> LiveFacts:
    assert facts.live is not None
    return facts.live


def _needs_cuda(region: str) -> Rule:
    return needs_cuda(
        f"capture.{region}.needs-cuda",
        asked=lambda facts: settings_of(facts, region).selected,
        claim=f"capture={region} records CUDA graphs",
    )


def _not_compiled(region: str, *, by: Collection[CompileName]) -> Rule:
    compiled = "{config.compile.selected}" if len(by) > 1 else str(*by)
    return _rule(
        region,
        "or-compile",
        stage=Stage.CONFIG,
        kind=Kind.REFUSE,
        applies=lambda facts: facts.config.compile.selected in by,
        sentence=f"capture={region} and compile={compiled} exclude each other, both take over the "
        f"same part of the step; set compile=none, or leave {region} out of capture",
    )


def _module_rules(region: str, of: Callable[[LiveFacts], ModuleFacts]) -> tuple[Rule, ...]:
    return (
        setup_rule(
            region,
            "own-forward",
            lambda live: of(live).own_forward,
            "records the forward of the classes, and it was replaced or compiled on {found}",
        ),
        setup_rule(
            region,
            "hooks",
            lambda live: of(live).hooked,
            "would replay without calling hooks, and there are some on {found}; remove them",
        ),
    )


def _needs_musgd(region: str) -> Rule:
    return _rule(
        region,
        "needs-musgd",
        stage=Stage.CONFIG,
        kind=Kind.REFUSE,
        applies=lambda facts: not isinstance(facts.config.optimizer, MuSGDConfig),
        sentence=f"capture={region} records a part of MuSGD, the optimizer is {{config.optimizer.name}}; set "
        f"optimizer=musgd, or leave {region} out of capture",
    )


def _needs_muon_weight(region: str) -> Rule:
    return _rule(
        region,
        "needs-muon-weight",
        stage=Stage.CONFIG,
        applies=lambda facts: (
            isinstance(facts.config.optimizer, MuSGDConfig) and not facts.config.optimizer.muon_weight
        ),
        sentence=f"capture={region} has nothing to record with optimizer.muon_weight=0: nothing is orthogonalized",
    )


def _optimizer_rules(region: str) -> tuple[Rule, ...]:
    return (
        setup_rule(
            region,
            "stock-optimizer",
            lambda live: () if live.optimizer_is_stock else (live.optimizer_class,),
            "records the update rule of MuSGD, the optimizer is of class {found}",
        ),
        setup_rule(
            region,
            "own-step",
            lambda live: live.own_steps,
            "records the methods of MuSGD, and these were replaced on the optimizer: {found}",
        ),
        setup_rule(
            region,
            "optimizer-hooks",
            lambda live: live.optimizer_hooks,
            "would replay between hooks that may change gradients or weights, and there are some: {found}; remove them",
        ),
        setup_rule(
            region,
            "optimizer-parameters",
            lambda live: live.optimizer_misfits,
            "needs parameters that are dense float32 tensors of the device, and found {found}",
        ),
        setup_rule(
            region,
            "groups-without-muon",
            lambda live: live.groups_without_muon,
            "needs a Muon weight above 0 in every parameter group, and it is 0 in {found}",
        ),
    )


def _network_rules(region: str, frozen: Callable[[LiveFacts], tuple[str, ...]]) -> tuple[Rule, ...]:
    return (
        _not_compiled(region, by=(CompileName.STEP,)),
        _needs_cuda(region),
        *_module_rules(region, lambda live: live.network),
        setup_rule(
            region,
            "frozen-part",
            frozen,
            "records the backward pass through every part, and not one parameter of {found} is trainable",
        ),
        setup_rule(
            region,
            "shared-parameters",
            lambda live: live.network.shared,
            "gives each parameter a gradient of its own, and {found} lie in the memory of others",
        ),
        setup_rule(
            region,
            "parameters",
            lambda live: live.network.misfits,
            "needs parameters that are dense float32 tensors of the device, and found {found}",
        ),
    )


def _needs_segment(region: str) -> Rule:
    return _rule(
        region,
        "needs-segment",
        stage=Stage.CONFIG,
        kind=Kind.REFUSE,
        applies=lambda facts: facts.config.task.name != TaskName.SEGMENT,
        sentence=f"capture={region} records the groups of predictions of task=segment, the task is "
        f"{{config.task.name}}, and capture=network records its head; leave {region} out of capture",
    )


RULES: dict[str, tuple[Rule, ...]] = {
    "network": _network_rules("network", lambda live: live.network.frozen),
    "heads": (
        _needs_segment("heads"),
        *_network_rules("heads", lambda live: tuple(part for part in live.network.frozen if part == "head")),
    ),
    "loss": (
        _not_compiled("loss", by=(CompileName.LOSS, CompileName.STEP)),
        _needs_cuda("loss"),
        setup_rule(
            "loss",
            "stock-loss",
            lambda live: () if live.loss_is_stock else (live.loss_class,),
            "records the loss that the task makes, and this one is of class {found}",
        ),
        *_module_rules("loss", lambda live: live.loss),
    ),
    "gradient_norm": (
        _needs_cuda("gradient_norm"),
        _rule(
            "gradient_norm",
            "needs-torch",
            stage=Stage.MACHINE,
            applies=lambda facts: not facts.machine.has_torch(*NORM_TORCH),
            sentence="capture=gradient_norm needs a final release of torch, 2.9 or newer, found "
            "{machine.torch_version} (a0, dev and rc builds are not final)",
        ),
        _rule(
            "gradient_norm",
            "needs-clipping",
            stage=Stage.CONFIG,
            applies=lambda facts: (facts.config.trainer.clip_norm or 0) <= 0,
            sentence="capture=gradient_norm records clipping by the norm, which trainer.clip_norm="
            "{config.trainer.clip_norm} switches off; 10 is its default",
        ),
        setup_rule(
            "gradient_norm",
            "stock-clipping",
            lambda live: live.own_clipping,
            "records the project's clipping, and these methods are others: {found}",
        ),
        setup_rule(
            "gradient_norm",
            "stock-precision",
            lambda live: (live.precision_clipping,) if live.precision_clipping else (),
            "records the project's clipping, and the precision plugin {found} clips in a way of its own",
        ),
        setup_rule(
            "gradient_norm",
            "unscaled-gradients",
            lambda live: (live.optimizer_class,) if live.unscales else (),
            "needs gradients without loss scaling, and the optimizer {found} undoes the scaling inside its step",
        ),
    ),
    **{
        region: (
            _needs_musgd(region),
            _needs_cuda(region),
            _needs_muon_weight(region),
            *_optimizer_rules(region),
        )
        for region in ("orthogonalization", "updates")
    },
}


def _flag(region: str) -> Flag:
    return Flag(
        key=f"capture.{region}",
        option=f"capture={region}",
        summary=SUMMARIES[region],
        requested=lambda facts: settings_of(facts, region).selected,
        choose=lambda facts: Choice(value=settings_of(facts, region).selected),
        fallback=False,
        rules=RULES[region],
    )


FLAGS = tuple(_flag(region) for region in REGIONS)
