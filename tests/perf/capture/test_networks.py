"""Recorded networks of all tasks, as a whole and in parts, against the steps they stand for."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

from lucid_yolo.config.errors import RunError
from lucid_yolo.config.regions import OF_EVERY_TASK, REGIONS
from lucid_yolo.nn.cast import CastOnce
from lucid_yolo.perf.capture.network import NetworkInParts
from tests.optim.helpers import Recorder
from tests.perf.capture.machine import Machine
from tests.perf.capture.rig import Rig, assert_equal
from tests.perf.capture.tapes import CallTape, PoolTape, SilentTape
from tests.perf.capture.workloads import REGIONS_OF

TABLE = [
    *(("segment", names) for names in (("network",), ("heads",), ("network", "heads"), REGIONS)),
    ("segment detached", REGIONS),
    *(("keypoints", names) for names in (("network",), ("network", "loss"), OF_EVERY_TASK)),
    ("keypoints detached", OF_EVERY_TASK),
    *(("obb", names) for names in (("network",), OF_EVERY_TASK)),
]
RECORDED = {"segment": REGIONS, "keypoints": OF_EVERY_TASK, "obb": OF_EVERY_TASK}


def parts_of(workload: str, name: str) -> int:
    """Recordings that an option makes."""
    options = list(REGIONS_OF.get(workload.partition(" ")[0], {}).values())
    return options.count(name) if options and name in ("network", "heads") else 1


def freeze_trunk(rig: Rig) -> None:
    rig.model.backbone.requires_grad_(False)
    rig.model.neck.requires_grad_(False)


def evaluate(rig: Rig) -> None:
    rig.model.eval()


def name_of_row(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else "+".join(value)


def assert_same_gradients(one: Rig, other: Rig) -> None:
    for mine, theirs in zip(one.parameters, other.parameters, strict=True):
        assert (mine.grad is None) == (theirs.grad is None)
        assert mine.grad is None or torch.equal(mine.grad, theirs.grad)


def assert_same_step(one: Rig, other: Rig, seed: int) -> None:
    """The same loss, gradients, norm and state, of two rigs that were in the same state."""
    totals = [rig.gradients(seed) for rig in (one, other)]
    assert torch.equal(*totals)
    assert_same_gradients(one, other)
    assert torch.equal(one.update(), other.update())
    assert_equal(one.state(), other.state())


@pytest.mark.parametrize(("workload", "names"), TABLE, ids=name_of_row)
def test_recorded_steps_equal_eager_ones_bit_for_bit(machine: Machine, workload: str, names: tuple[str, ...]) -> None:
    eager, rig = machine.rig(workload), machine.rig(workload)
    recorder = rig.record(machine.tape(), *names)
    for seed in range(3):
        assert_same_step(rig, eager, seed)
    outcomes = recorder.outcomes()
    assert list(outcomes) == [f"capture.{name}" for name in names]
    for name in names:
        parts, outcome = parts_of(workload, name), outcomes[f"capture.{name}"]
        assert (outcome["recordings"], outcome["replays"], outcome["native_calls"]) == (parts, 3 * parts, 0)
        assert not {"retired", "native_reason"} & outcome.keys()


@pytest.mark.parametrize(
    ("workload", "names"),
    [
        ("segment", REGIONS),
        ("segment", ("heads",)),
        ("segment", ("network", "loss")),
        ("keypoints", OF_EVERY_TASK),
        ("obb", OF_EVERY_TASK),
    ],
    ids=name_of_row,
)
def test_recordings_of_one_pool_leave_what_is_still_needed(workload: str, names: tuple[str, ...]) -> None:
    eager, rig = Rig(workload), Rig(workload)
    rig.record(PoolTape(), *names)
    for seed in range(2):
        for one in (eager, rig):
            one.gradients(seed)
    assert_same_gradients(rig, eager)
    assert torch.equal(rig.update(), eager.update())
    assert_same_step(rig, eager, 2)


@pytest.mark.parametrize("task", RECORDED)
def test_recordings_of_one_pool_leave_what_a_task_still_needs(task: str) -> None:
    eager, rig = (Rig(overrides=[f"task={task}"]) for _ in range(2))
    rig.record(PoolTape(), *RECORDED[task])
    for seed in range(2):
        assert_same_step(rig, eager, seed)


def thaw(rig: Rig) -> None:
    rig.model.requires_grad_(True)


def train(rig: Rig) -> None:
    rig.model.train()


@pytest.mark.parametrize(
    ("workload", "before", "after"),
    [
        ("segment", freeze_trunk, thaw),
        ("obb", evaluate, train),
    ],
)
def test_a_network_that_is_recorded_late_has_a_pool_of_its_own(
    workload: str, before: Callable[[Rig], None], after: Callable[[Rig], None]
) -> None:
    eager, rig = Rig(workload), Rig(workload)
    tape = PoolTape()
    recorder = rig.record(tape, *RECORDED[workload])
    for change in (before, after):
        for one in (eager, rig):
            change(one)
        for seed in range(2):
            for one in (rig, eager):
                one.gradients(seed)
            assert_same_gradients(rig, eager)
        assert torch.equal(rig.update(), eager.update())
    outcome = recorder.outcomes()["capture.network"]
    assert (outcome["recordings"], outcome["replays"], outcome["native_calls"]) == (1, 2, 2)
    assert tape.renewed >= 1


@pytest.mark.parametrize("workload", RECORDED)
def test_recorded_steps_in_low_precision_equal_eager_ones(machine: Machine, workload: str) -> None:
    eager, rig = (machine.rig(workload, precision="bf16-mixed") for _ in range(2))
    recorder = rig.record(machine.tape(), *RECORDED[workload])
    for seed in range(3):
        assert_same_step(rig, eager, seed)
    assert recorder.outcomes()["capture.network"]["native_calls"] == 0


@pytest.mark.parametrize(
    ("workload", "names"),
    [*RECORDED.items(), ("segment", ("network",)), ("segment", ("heads",))],
    ids=name_of_row,
)
def test_accumulated_gradients_are_those_of_eager_training(
    machine: Machine, workload: str, names: tuple[str, ...]
) -> None:
    eager, rig = machine.rig(workload), machine.rig(workload)
    rig.record(machine.tape(), *names)
    for _ in range(2):
        for seed in range(3):
            for one in (eager, rig):
                one.gradients(seed, share=1 / 3)
            assert_same_gradients(rig, eager)
        assert torch.equal(rig.update(), eager.update())
    assert_equal(rig.state(), eager.state())


@pytest.mark.parametrize("natively", [(0,), (1, 2)])
def test_passes_in_parts_and_without_a_recording_accumulate(machine: Machine, natively: tuple[int, ...]) -> None:
    eager, rig = machine.rig("segment"), machine.rig("segment")
    recorder = rig.record(machine.tape(), *REGIONS)
    for step in range(2):
        for seed in range(3):
            for one in (eager, rig):
                one.batch = 1 if seed in natively else 2  # a partial batch
                one.gradients(seed)
            assert_same_gradients(rig, eager)
        assert torch.equal(rig.update(), eager.update()), step
    assert_equal(rig.state(), eager.state())
    outcome = recorder.outcomes()["capture.heads"]
    counts = (outcome["recordings"], outcome["replays"] + outcome["native_calls"])
    if 0 not in natively:  # what comes first is recorded, whatever its size
        assert outcome["native_calls"] == 5 * 2 * len(natively)
        assert outcome["native_reason"] == "inputs of another shape, type or layout"
    assert counts == (5, 5 * 6)


@pytest.mark.parametrize("workload", RECORDED)
def test_evaluation_and_copies_in_between_change_nothing(machine: Machine, workload: str) -> None:
    eager, rig = machine.rig(workload), machine.rig(workload)
    recorder = rig.record(machine.tape(), *RECORDED[workload])
    for seed in range(2):
        assert_same_step(rig, eager, seed)
        for one in (rig, eager):
            one.model.eval()
            with torch.no_grad():
                one.model(one.images(9))
            one.model.train()
            with torch.no_grad():
                one.objective.network(one.images(8))  # moves the batch statistics
        copied = copy.deepcopy(rig.objective)
        assert type(copied.network) is CastOnce
        assert type(copied.network.network) is type(rig.model)
        assert copied.network.network is not rig.model
        copied(rig.images(0), rig.targets(0)).total.backward()
        assert all(p.grad is None for p in rig.parameters)
    outcome = recorder.outcomes()["capture.network"]
    parts = parts_of(workload, "network")
    assert (outcome["recordings"], outcome["replays"]) == (parts, 2 * parts)
    assert (outcome["native_calls"], outcome["native_reason"]) == (2 * parts, "gradients are switched off")
    assert "retired" not in outcome


def test_a_network_in_parts_is_copied_and_pickled_as_the_network(machine: Machine) -> None:
    rig = machine.rig("segment")
    rig.record(machine.tape(), "network", "heads")
    rig.step(0)
    assert type(rig.objective.network) is NetworkInParts
    network = pickle.loads(pickle.dumps(rig.objective)).network
    assert type(network) is CastOnce
    assert_equal(network.network.state_dict(), rig.model.state_dict())
    assert rig.model.state_dict().keys() == machine.rig("segment").model.state_dict().keys()


def test_without_an_option_of_its_parts_a_network_is_the_eager_one(machine: Machine) -> None:
    rig = machine.rig("segment")
    rig.record(machine.tape(), "loss", "updates")
    assert type(rig.objective.network) is CastOnce


def test_closed_recordings_compute_natively(machine: Machine) -> None:
    eager, rig = machine.rig("segment"), machine.rig("segment")
    recorder = rig.record(machine.tape(), *REGIONS)
    assert_same_step(rig, eager, 0)
    recorder.close()
    assert_same_step(rig, eager, 1)
    outcome = recorder.outcomes()["capture.heads"]
    assert (outcome["replays"], outcome["native_calls"], outcome["native_reason"]) == (5, 5, "the fit is over")


def test_what_was_never_called_is_told_too(machine: Machine) -> None:
    recorder = machine.rig("segment").record(machine.tape(), *REGIONS)
    assert [outcome["replays"] for outcome in recorder.outcomes().values()] == [0] * len(REGIONS)


def freeze_points(rig: Rig) -> None:
    rig.model.head.points.one_to_many.requires_grad_(False)


def hook_points(rig: Rig) -> None:
    rig.model.head.points.one_to_one[0].register_forward_hook(lambda module, inputs, output: 2 * output)


def evaluate_points(rig: Rig) -> None:
    rig.model.head.points.one_to_many[1].eval()


def replace_a_stem(rig: Rig) -> None:
    rig.model.head.points.one_to_one[0] = copy.deepcopy(rig.model.head.points.one_to_one[0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (freeze_points, "requires_grad of a parameter changed"),
        (hook_points, "a hook was added or removed"),
        (evaluate_points, "a module changed between training and evaluation"),
        (replace_a_stem, "a module was replaced"),
    ],
)
@pytest.mark.filterwarnings("ignore:capture=(gradient_norm|updates)")
def test_a_changed_part_is_given_up_alone(machine: Machine, change: Callable[[Rig], None], words: str) -> None:
    eager, rig = machine.rig("keypoints"), machine.rig("keypoints")
    recorder = rig.record(machine.tape(), "network", "loss")
    assert_same_step(rig, eager, 0)
    for one in (rig, eager):
        change(one)
    with pytest.warns(UserWarning, match=rf"capture=network: {words} \(points\); the recording was given up") as caught:
        gradients = [one.gradients(1) for one in (rig, eager)]
    assert len(caught) == 1
    assert torch.equal(*gradients)
    assert_same_gradients(rig, eager)
    for one in (rig, eager):
        one.gradients(2)  # a replayed and a native part accumulate; a second warning would be an error
    assert_same_gradients(rig, eager)
    outcome = recorder.outcomes()["capture.network"]
    assert (outcome["recordings"], outcome["replays"], outcome["native_calls"]) == (3, 3 + 2 * 2, 2)
    assert outcome["retired"] == outcome["native_reason"] == f"{words} (points)"


def hook_the_head(rig: Rig) -> None:
    rig.model.head.register_forward_hook(
        lambda module, inputs, output: output._replace(prototypes=output.prototypes * 2)
    )


def hook_the_network(rig: Rig) -> None:
    rig.model.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))


def replace_the_neck(rig: Rig) -> None:
    rig.model.neck = copy.deepcopy(rig.model.neck)
    with torch.no_grad():
        next(rig.model.neck.parameters()).mul_(2)


def replace_the_head(rig: Rig) -> None:
    rig.model.head = copy.deepcopy(rig.model.head)
    with torch.no_grad():
        next(rig.model.head.prototypes.parameters()).mul_(2)


def detach(rig: Rig) -> None:
    rig.model.head.detach_one_to_one = True


@pytest.mark.parametrize(
    ("names", "change", "words"),
    [
        (("network", "heads"), hook_the_head, "a hook was added or removed"),
        (("network",), hook_the_head, "a hook was added or removed"),
        (("heads",), hook_the_network, "a hook was added or removed"),
        (("heads",), replace_the_neck, "a module was replaced"),
        (("network",), replace_the_head, "a module was replaced"),
        (("network", "heads"), replace_the_head, "a module was replaced"),
        (("heads",), detach, "a setting of a module changed"),
    ],
)
def test_what_changes_between_the_parts_gives_all_of_them_up(
    machine: Machine, names: tuple[str, ...], change: Callable[[Rig], None], words: str
) -> None:
    eager, rig = machine.rig("segment"), machine.rig("segment")
    recorder = rig.record(machine.tape(), *names)
    assert_same_step(rig, eager, 0)
    for one in (rig, eager):
        change(one)
    with pytest.warns(UserWarning, match=words) as caught:
        totals = [one.gradients(1) for one in (rig, eager)]
    assert [str(warning.message).partition(":")[0] for warning in caught] == [f"capture={name}" for name in names]
    assert torch.equal(*totals)
    mine, theirs = ([p.grad for p in one.model.parameters()] for one in (rig, eager))
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    rig.gradients(2)  # a second warning would be an error
    for name in names:
        parts, outcome = parts_of("segment", name), recorder.outcomes()[f"capture.{name}"]
        assert (outcome["replays"], outcome["native_calls"]) == (parts, 2 * parts)
        assert outcome["retired"] == words


def test_evaluation_of_the_recorded_network_gives_it_up(machine: Machine) -> None:
    rig = machine.rig("segment")
    recorder = rig.record(machine.tape(), "network", "heads")
    network = rig.objective.network
    rig.model.eval()
    assert network(rig.images(0)).semantic == ()
    assert recorder.outcomes()["capture.heads"]["native_reason"] == "evaluation mode"
    rig.model.train()
    rig.step(0)
    rig.model.eval()
    with pytest.warns(UserWarning, match="between training and evaluation") as caught:
        predictions = network(rig.images(0))
    assert len(caught) == 2
    assert predictions.semantic == ()
    expected = rig.model(rig.images(0))
    assert torch.equal(predictions.prototypes, expected.prototypes)


def test_a_frozen_trunk_is_computed_natively_under_recorded_heads(machine: Machine) -> None:
    eager, rig = machine.rig("segment"), machine.rig("segment")
    for one in (eager, rig):
        freeze_trunk(one)
        one.model.head.semantic.requires_grad_(False)
    recorder = rig.record(machine.tape(), *REGIONS)
    for seed in range(3):
        assert_same_step(rig, eager, seed)
    trunk, heads = (recorder.outcomes()[f"capture.{name}"] for name in ("network", "heads"))
    assert (trunk["recordings"], trunk["native_calls"]) == (0, 3)
    assert trunk["native_reason"] == "nothing that it computes has a gradient"
    assert (heads["recordings"], heads["replays"], heads["native_calls"]) == (5, 15, 0)


def test_a_part_without_a_trained_parameter_hands_the_gradient_on(machine: Machine) -> None:
    eager, rig = machine.rig("keypoints"), machine.rig("keypoints")
    for one in (eager, rig):
        one.model.head.points.requires_grad_(False)
    recorder = rig.record(machine.tape(), *OF_EVERY_TASK)
    for seed in range(3):
        assert_same_step(rig, eager, seed)
    assert recorder.outcomes()["capture.network"]["replays"] == 9


def test_a_part_outside_of_the_optimizer_is_given_up_alone(machine: Machine) -> None:
    rig = machine.rig("keypoints")
    held = {id(p) for p in rig.model.head.points.parameters()}
    rig.parameters = [p for p in rig.parameters if id(p) not in held]
    rig.optimizer.param_groups[0]["params"] = rig.parameters
    recorder = rig.record(machine.tape(), "network")
    with pytest.warns(UserWarning, match=r"was not in the optimizer at the start \(points\)"):
        rig.step(0)
    outcome = recorder.outcomes()["capture.network"]
    assert (outcome["recordings"], outcome["replays"], outcome["native_calls"]) == (2, 2, 1)


def test_late_backward_pass_of_a_part_is_refused(machine: Machine) -> None:
    for names in (("network",), ("heads",)):
        rig = machine.rig("segment")
        rig.record(machine.tape(), *names)
        first = rig.objective(rig.images(0), rig.targets(0))
        rig.objective(rig.images(1), rig.targets(1))
        with pytest.raises(RunError, match=f"capture={names[0]}: a backward pass came after a later forward pass"):
            first.total.backward()


def test_several_reasons_are_all_told(machine: Machine) -> None:
    rig = machine.rig("segment")
    recorder = rig.record(machine.tape(), "heads")
    rig.step(0)
    rig.model.head.coefficients.requires_grad_(False)
    rig.model.head.prototypes.register_forward_hook(lambda *_: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rig.gradients(1)
    assert recorder.outcomes()["capture.heads"]["retired"] == (
        "requires_grad of a parameter changed (coefficients); a hook was added or removed (prototypes)"
    )


def test_a_failing_recording_of_a_part_puts_everything_back_and_names_the_flag() -> None:
    class BreaksLater(CallTape):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def record(self, function):
            self.calls += 1
            if self.calls < 6:
                return super().record(function)
            function()
            raise RuntimeError("operation not permitted when stream is capturing")

    rig = Rig("segment")
    rig.record(BreaksLater(), "network", "heads")
    statistics = {name: b.clone() for name, b in rig.model.head.coefficients.named_buffers()}
    assert len(statistics) > 10
    with pytest.raises(RunError, match=r"Recording heads \(capture=heads\) failed: RuntimeError: operation not"):
        rig.step(0)
    assert_equal(dict(rig.model.head.coefficients.named_buffers()), statistics)
    assert all(p.grad is None for p in rig.parameters)


def test_layers_of_one_part_are_cast_together_in_low_precision() -> None:
    rig = Rig("segment", precision="bf16-mixed")
    rig.record(CallTape(), "network")
    seen: list[torch.dtype] = []
    layer = next(m for m in rig.model.head.prototypes.modules() if isinstance(m, nn.Conv2d))
    rig.gradients(0)
    stock = layer._conv_forward
    layer._conv_forward = lambda images, weight, bias: (seen.append(weight.dtype), stock(images, weight, bias))[1]
    rig.gradients(1)
    assert seen == [torch.bfloat16]
    assert layer.weight.dtype == torch.float32


@pytest.mark.parametrize(
    ("workload", "copies"),
    [
        ("obb", 3),  # images and targets, then the gradient of the total
        ("keypoints", 4),  # and the gradients of the levels, sums over the parts
        ("segment", 5),  # and that of the fused features
    ],
)
def test_nothing_is_copied_from_one_recording_to_the_next(workload: str, copies: int) -> None:
    rig = Rig(workload)
    rig.record(SilentTape(), "network", "heads", "loss")
    rig.gradients(0)
    for parameter in rig.parameters:
        parameter.grad = None
    images, targets = rig.images(1), rig.targets(1)
    with Recorder() as recorder:
        rig.objective(images, targets).total.backward()
    assert recorder.counts["_foreach_copy_"] == copies
    assert not recorder.counts.keys() & {"copy_", "zero_", "_to_copy"}
