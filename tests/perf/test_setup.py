"""What hooks, freezing, sharing and replaced methods do to the flags, on small real networks."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from dataclasses import replace

import lightning as L
import pytest
import torch
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from lucid_yolo.config.compose import compose, to_root
from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.regions import OF_EVERY_TASK
from lucid_yolo.config.schema import CompileName, OnUnmet
from lucid_yolo.config.tasks import TaskName
from lucid_yolo.data.labels.base import LabelKind, LabelSpec, spec_without_data
from lucid_yolo.losses.detection import DetectionLoss
from lucid_yolo.nn.model import Detector, Scale
from lucid_yolo.optim.musgd import MuSGD
from lucid_yolo.optim.sgd import SGD
from lucid_yolo.perf.live import LiveFacts
from lucid_yolo.perf.plan import resolve
from lucid_yolo.perf.setup import Built, clips_as_stock, describe, judge_setup
from lucid_yolo.tasks import get_task
from tests.perf.machines import CUDA, make_config

TINY = Scale("tiny", 0.5, 0.125, 128)


class Module(L.LightningModule):
    """Stands in for the project's Lightning module."""


class OtherClipping(Module):
    def configure_gradient_clipping(self, *args: object, **kwargs: object) -> None: ...


class Outside(L.Callback):
    def on_train_batch_start(self, *_: object) -> None: ...
    def on_train_batch_end(self, *_: object) -> None: ...


class Inside(Outside):
    def on_after_backward(self, *_: object) -> None: ...


class ByValue(Precision):
    def clip_gradients(self, *args: object, **kwargs: object) -> None: ...


class Quiet(MixedPrecision):
    """A plugin of one's own that leaves clipping alone."""

    def __init__(self) -> None: ...


class MyLoss(DetectionLoss): ...


class MyMuSGD(MuSGD): ...


MyMuSGD.__name__ = "MuSGD"  # a name proves nothing


def make_built() -> Built:
    config = make_config(capture=OF_EVERY_TASK)
    config.task.name, config.data.image_size = TaskName.DETECT, 64
    network = Detector(TINY, 3)
    return Built(
        config=config,
        network=network,
        loss=get_task(TaskName.DETECT).build_loss(config.task, LabelSpec(3), 64),
        optimizer=MuSGD(network.parameters(), lr=0.01),
        module=Module(),
        module_class=Module,
        callbacks=[Outside()],
        precision=Precision(),
        device=torch.device("cpu"),
    )


def test_what_the_project_builds_is_stock() -> None:
    assert describe(make_built()) == LiveFacts()
    assert describe(replace(make_built(), device=torch.device("cpu", 0))) != LiveFacts()  # the CPU has no index


def test_a_loss_with_parameters_is_stock_and_looking_at_it_draws_no_random_number() -> None:
    config = to_root(compose(["task=keypoints", "data.image_size=64"]))
    loss = get_task(config.task.name).build_loss(config.task, spec_without_data(LabelKind.KEYPOINTS, 3), 64)
    built = replace(make_built(), config=config, loss=loss)
    before = torch.get_rng_state()
    assert describe(built) == LiveFacts(loss_class="KeypointLoss")
    assert torch.equal(torch.get_rng_state(), before)


def judged(built: Built) -> dict[str, tuple[str | None, str]]:
    """Rule and reason of every row that fell back."""
    plan = resolve(built.config, CUDA, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = judge_setup(plan, built)
    return {row.key: (row.rule_id, row.reason) for row in found.rows if row.rule_id}


def freeze(part: nn.Module) -> None:
    part.requires_grad_(False)


def own_forward(built: Built) -> None:
    neck = built.network.neck
    neck.forward = types.MethodType(type(neck).forward, neck)


def tie(built: Built) -> None:
    head = built.network.head
    head.one_to_one.box[0][4].weight = head.one_to_many.box[0][4].weight


def view(built: Built) -> None:
    head = built.network.head
    head.one_to_one.box[0][4].weight = nn.Parameter(head.one_to_many.box[0][4].weight.detach()[:])


class Subclass(nn.Parameter): ...


def subclass(built: Built) -> None:
    conv = built.network.backbone.stage8[0].conv
    conv.weight = Subclass(conv.weight.detach())


def freeze_all_but_one(built: Built) -> None:
    freeze(built.network.backbone)
    next(iter(built.network.backbone.parameters())).requires_grad_(True)


CHANGES: dict[str, tuple[Callable[[Built], object], set[str], str]] = {
    "forward on an instance": (own_forward, {"capture.network.own-forward"}, "on neck"),
    "nn.Module.compile": (lambda b: b.network.head.compile(), {"capture.network.own-forward"}, "on head"),
    "forward hook": (
        lambda b: b.network.neck.register_forward_hook(print),
        {"capture.network.hooks"},
        "some on neck;",
    ),
    "forward pre-hook": (lambda b: b.loss.register_forward_pre_hook(print), {"capture.loss.hooks"}, "on itself"),
    "backward hook": (
        lambda b: b.network.backbone.stage8[0].register_full_backward_hook(print),
        {"capture.network.hooks"},
        "on backbone.stage8.0",
    ),
    "backward pre-hook": (
        lambda b: b.network.register_full_backward_pre_hook(print),
        {"capture.network.hooks"},
        "on itself",
    ),
    "hook of a parameter": (
        lambda b: b.network.backbone.stage8[0].conv.weight.register_hook(print),
        {"capture.network.hooks"},
        "on backbone.stage8.0.conv.weight",
    ),
    "frozen backbone": (lambda b: freeze(b.network.backbone), {"capture.network.frozen-part"}, "of backbone is"),
    "frozen neck and head": (
        lambda b: (freeze(b.network.neck), freeze(b.network.head)),
        {"capture.network.frozen-part"},
        "of neck, head is",
    ),
    "all but one tensor frozen": (freeze_all_but_one, set(), ""),
    "one tensor under two names": (
        tie,
        {"capture.network.shared-parameters"},
        "and head.one_to_one.box.0.4.weight lie",
    ),
    "two parameters in one memory": (view, {"capture.network.shared-parameters"}, "head.one_to_one.box.0.4.weight"),
    "a subclass of tensor": (
        subclass,
        {"capture.network.parameters"},
        "backbone.stage8.0.conv.weight of class Subclass",
    ),
    "half precision": (
        lambda b: b.network.neck.half(),
        {"capture.network.parameters", "capture.orthogonalization.optimizer-parameters"}
        | {"capture.updates.optimizer-parameters"},
        "(float16, strided, cpu)",
    ),
    "step on an instance": (
        lambda b: setattr(b.optimizer, "step", b.optimizer.step),
        {"capture.orthogonalization.own-step", "capture.updates.own-step"},
        "on the optimizer: step",
    ),
    "a part of the update on an instance": (
        lambda b: setattr(b.optimizer, "advance_momentum", print),
        {"capture.orthogonalization.own-step", "capture.updates.own-step"},
        "on the optimizer: advance_momentum",
    ),
    "hook before the step": (
        lambda b: b.optimizer.register_step_pre_hook(print),
        {"capture.orthogonalization.optimizer-hooks", "capture.updates.optimizer-hooks"},
        "hooks of this optimizer",
    ),
    "a group without Muon": (
        lambda b: b.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2, 2))], "muon_weight": 0}),
        {"capture.orthogonalization.groups-without-muon", "capture.updates.groups-without-muon"},
        "it is 0 in group 1",
    ),
    "an optimizer that unscales": (
        lambda b: setattr(b.optimizer, "_step_supports_amp_scaling", True),
        {"capture.gradient_norm.unscaled-gradients"},
        "the optimizer MuSGD undoes",
    ),
    "clipping on an instance": (
        lambda b: setattr(b.module, "clip_gradients", print),
        {"capture.gradient_norm.stock-clipping"},
        "Module.clip_gradients",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_makes_just_the_flags_fall_back_that_it_touches(change: str) -> None:
    make, rules, words = CHANGES[change]
    built = make_built()
    make(built)
    found = judged(built)
    assert {rule for rule, _ in found.values()} == rules
    assert all(words in reason for _, reason in found.values())


def test_classes_are_compared_and_not_their_names() -> None:
    built = make_built()
    loss = MyLoss(3, get_anchors(), built.config.task.loss, built.config.task.assigner)
    assert judged(replace(built, loss=loss)).keys() == {"capture.loss"}
    mine = judged(replace(built, optimizer=MyMuSGD(built.network.parameters(), lr=0.01)))
    assert {rule for rule, _ in mine.values()} == {
        "capture.orthogonalization.stock-optimizer",
        "capture.updates.stock-optimizer",
    }
    assert len(judged(replace(built, optimizer=SGD(built.network.parameters(), lr=0.01, momentum=0.9)))) == 2
    assert judged(replace(built, module=OtherClipping()))["capture.gradient_norm"][1].endswith(
        "OtherClipping.configure_gradient_clipping"
    )


def test_what_lies_inside_a_step_is_known_by_its_functions() -> None:
    built = make_built()
    assert describe(replace(built, callbacks=[Outside(), Inside()])).hooks_in_step == ("Inside.on_after_backward",)
    built.module.training_step = print
    assert describe(built).hooks_in_step == ("Module.training_step",)
    found = describe(replace(built, module=OtherClipping())).hooks_in_step
    assert found == ("OtherClipping.configure_gradient_clipping",)
    mine = replace(built, module=Module(), optimizer=MyMuSGD(built.network.parameters(), lr=0.01))
    assert not describe(mine).optimizer_is_ours
    assert describe(replace(mine, optimizer=SGD(built.network.parameters(), lr=0.01, momentum=0.9))).optimizer_is_ours


def get_anchors():
    from lucid_yolo.ops.anchors import make_anchors

    return make_anchors(64, Detector.strides)


def test_precision_plugins_are_known_by_their_functions() -> None:
    assert clips_as_stock(Precision())
    assert clips_as_stock(Quiet())
    assert not clips_as_stock(ByValue())
    assert judged(replace(make_built(), precision=ByValue())) == {
        "capture.gradient_norm": (
            "capture.gradient_norm.stock-precision",
            "capture=gradient_norm records the project's clipping, and the precision plugin ByValue clips in a way of "
            "its own",
        )
    }


def test_hooks_of_the_process_count() -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        found = judged(make_built())
    finally:
        handle.remove()
    assert {key: rule for key, (rule, _) in found.items()} == {
        "capture.network": "capture.network.hooks",
        "capture.loss": "capture.loss.hooks",
    }
    handle = register_optimizer_step_post_hook(lambda *_: None)
    try:
        found = judged(make_built())
    finally:
        handle.remove()
    assert found.keys() == {"capture.orthogonalization", "capture.updates"}


def test_a_compiled_network_is_found() -> None:
    built = make_built()
    found = judged(replace(built, network=torch.compile(built.network, backend="eager")))
    assert found["capture.network"][0] == "capture.network.own-forward"


def test_another_device_is_named() -> None:
    built = make_built()
    others = len(list(built.network.parameters())) - 3
    found = judged(replace(built, device=torch.device("cuda")))
    assert found["capture.network"][1].endswith(f"(float32, strided, cpu) and {others} more")


def test_one_warning_names_what_fell_back_here_and_nothing_twice() -> None:
    built = make_built()
    built.config.trainer.clip_norm = None  # falls back before
    freeze(built.network.backbone)
    built.optimizer.register_step_pre_hook(print)
    plan = resolve(built.config, CUDA, None)
    with pytest.warns(UserWarning, match="not active in this run") as caught:
        found = judge_setup(plan, built)
    assert len(caught) == 1
    text = str(caught[0].message)
    assert all(f"  capture.{name}: " in text for name in ("network", "orthogonalization", "updates"))
    assert "gradient_norm" not in text
    assert [row.key for row in found.rows if row.key.startswith("capture.") and row.active] == ["capture.loss"]
    assert found["capture.loss"] == plan["capture.loss"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert judge_setup(found, built) == found


def test_on_unmet_raise_reports_every_broken_rule() -> None:
    built = make_built()
    built.config.on_unmet = OnUnmet.RAISE
    assert judge_setup(resolve(built.config, CUDA, None), built) == resolve(built.config, CUDA, None)
    freeze(built.network.backbone)
    built.network.register_forward_hook(print)
    with pytest.raises(ConfigError) as caught:
        judge_setup(resolve(built.config, CUDA, None), built)
    assert [problem.rpartition("; ")[2] for problem in caught.value.problems] == [
        "on_unmet=raise stops the run for it [capture.network.hooks]",
        "on_unmet=raise stops the run for it [capture.network.frozen-part]",
    ]


def test_without_a_flag_nothing_is_looked_at() -> None:
    config = make_config()
    config.compile.selected = CompileName.STEP
    plan = resolve(config, CUDA, None)
    assert judge_setup(plan, replace(make_built(), config=config, network=None, optimizer=None)) is plan
