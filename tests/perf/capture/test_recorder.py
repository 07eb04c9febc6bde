"""Recorded parts against the step they stand for: on a tape that needs no CUDA, and as CUDA graphs."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from lucid_yolo.config.errors import RunError
from lucid_yolo.config.regions import OF_EVERY_TASK, REGIONS
from lucid_yolo.nn.cast import CastOnce
from lucid_yolo.optim.clip import clip_gradients
from lucid_yolo.perf.capture.region import MAX_RECORDINGS
from tests.perf.capture.machine import Machine
from tests.perf.capture.rig import Rig, assert_equal
from tests.perf.capture.tapes import CallTape

SUBSETS = [*((name,) for name in OF_EVERY_TASK), OF_EVERY_TASK[:2], OF_EVERY_TASK[2:], OF_EVERY_TASK]


def run(rig: Rig, steps: int = 4) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [rig.step(seed) for seed in range(steps)]


@pytest.fixture(scope="module")
def eager(machine: Machine) -> tuple[list[tuple[torch.Tensor, torch.Tensor]], dict[str, torch.Tensor]]:
    rig = machine.rig()
    return run(rig), rig.state()


@pytest.mark.parametrize("names", SUBSETS, ids="+".join)
def test_recorded_steps_equal_eager_ones_bit_for_bit(machine: Machine, names, eager) -> None:
    values, state = eager
    rig = machine.rig()
    recorder = rig.record(machine.tape(), *names)
    for (total, norm), (total_eager, norm_eager) in zip(run(rig), values, strict=True):
        assert torch.equal(total, total_eager)
        assert torch.equal(norm, norm_eager)
    assert_equal(rig.state(), state)
    outcomes = recorder.outcomes()
    assert set(outcomes) == {f"capture.{name}" for name in names}
    for outcome in outcomes.values():
        assert (outcome["recordings"], outcome["replays"], outcome["native_calls"]) == (1, 4, 0)


def test_recorded_steps_in_low_precision_equal_eager_ones(machine: Machine) -> None:
    eager, rig = (machine.rig(precision="bf16-mixed") for _ in range(2))
    recorder = rig.record(machine.tape(), *OF_EVERY_TASK)
    for one, other in zip(run(rig), run(eager), strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])
    assert_equal(rig.state(), eager.state())
    assert recorder.outcomes()["capture.network"]["native_calls"] == 0


OF_TASKS = {
    "segment": [("network", "heads"), REGIONS],
    "keypoints": [("network",), OF_EVERY_TASK],
    "obb": [OF_EVERY_TASK],
}


@pytest.mark.parametrize(
    ("task", "names"), [(task, names) for task, subsets in OF_TASKS.items() for names in subsets], ids=str
)
def test_recorded_steps_of_every_task_equal_eager_ones(machine: Machine, task: str, names: tuple[str, ...]) -> None:
    eager, rig = (Rig(device=machine.device, overrides=[f"task={task}"]) for _ in range(2))
    recorder = rig.record(machine.tape(), *names)
    for one, other in zip(run(rig, 3), run(eager, 3), strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])
    assert_equal(rig.state(), eager.state())
    outcomes = recorder.outcomes()
    assert set(outcomes) == {f"capture.{name}" for name in names}
    assert all(outcome["native_calls"] == 0 and outcome["recordings"] > 0 for outcome in outcomes.values())


def test_a_loss_with_parameters_has_trained_them(machine: Machine) -> None:
    rig = Rig(device=machine.device, overrides=["task=keypoints"])
    rig.record(machine.tape(), "loss")
    run(rig, 2)
    assert rig.state()["loss.flow.couplings.0.net.4.weight"].abs().sum() > 0  # it starts at zero


def test_accumulated_gradients_are_those_of_eager_training(machine: Machine) -> None:
    eager, rig = machine.rig(), machine.rig()
    rig.record(machine.tape(), *OF_EVERY_TASK)
    for _ in range(2):
        for one in (eager, rig):
            for seed in range(3):
                one.gradients(seed, share=1 / 3)
        for mine, theirs in zip(rig.parameters, eager.parameters, strict=True):
            assert torch.equal(mine.grad, theirs.grad)
        eager.update(), rig.update()
    assert_equal(rig.state(), eager.state())


def test_a_replayed_and_a_native_pass_accumulate(machine: Machine) -> None:
    eager, rig = machine.rig(), machine.rig()
    rig.record(machine.tape(), "network")
    native = rig.objective
    for first_native in (True, False):
        for seed, is_native in ((0, first_native), (1, not first_native)):
            eager.gradients(seed)
            rig.objective = eager_objective(rig) if is_native else native
            rig.gradients(seed)
        eager.update(), rig.update()
    assert_equal(rig.state(), eager.state())


def eager_objective(rig: Rig):
    return lambda images, targets: rig.loss(rig.model(images), targets)


def test_rehearsal_leaves_statistics_random_state_and_gradients_alone(machine: Machine) -> None:
    rig = machine.rig()
    rig.record(machine.tape(), "network", "loss")
    statistics = {name: b.clone() for name, b in rig.model.named_buffers()}
    random = torch.get_rng_state()
    place = torch.full_like(rig.parameters[0], 3.0)
    rig.parameters[0].grad = place
    with torch.no_grad():
        images = rig.images(0)
    predictions = rig.objective.network(images)
    eager = machine.rig()
    eager.model(images)
    for name, buffer in rig.model.named_buffers():  # one forward pass, not three
        assert torch.equal(buffer, dict(eager.model.named_buffers())[name])
        assert buffer.shape != (16,) or not torch.equal(buffer, statistics[name]) or "num" in name
    assert torch.equal(torch.get_rng_state(), random)
    assert rig.parameters[0].grad is place
    assert torch.equal(place, torch.full_like(place, 3.0))
    del predictions


def test_more_rows_are_recorded_anew_and_fewer_are_filled_up(machine: Machine) -> None:
    eager, rig = machine.rig(), machine.rig()
    tape = machine.tape()
    recorder = rig.record(tape, "loss")
    for seed, (count, rows) in enumerate([(5, 16), (20, 32), (3, 16), (0, 16), (40, 64), (20, 32)]):
        for one in (eager, rig):
            one.step(seed, one.targets(seed, count, rows))
    assert_equal(rig.state(), eager.state())
    outcome = recorder.outcomes()["capture.loss"]
    assert (outcome["recordings"], outcome["replays"], outcome["native_calls"]) == (3, 6, 0)
    if isinstance(tape, CallTape):
        assert tape.renewed == 2  # not the memory of the first: other recordings may share it


def test_rows_that_never_stop_growing_retire_the_recording(machine: Machine) -> None:
    rig = machine.rig()
    recorder = rig.record(machine.tape(), "loss")
    for power in range(MAX_RECORDINGS):
        rig.step(power, rig.targets(power, 5, 16 * 2**power))
    with pytest.warns(UserWarning, match="capture=loss: its inputs outgrew"):
        rig.step(99, rig.targets(99, 5, 16 * 2**MAX_RECORDINGS))
    assert recorder.outcomes()["capture.loss"]["native_calls"] == 1


def widen(rig: Rig) -> None:
    """Let a convolution look further."""
    layers = [m for m in rig.model.modules() if isinstance(m, nn.Conv2d)]
    layer = next(m for m in layers if m.kernel_size == (3, 3) and m.stride == (1, 1))
    layer.padding = layer.dilation = (2, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rig: rig.model.backbone.register_forward_hook(lambda *_: None), "a hook was added"),
        (lambda rig: rig.model.neck.eval(), "training and evaluation"),
        (lambda rig: rig.parameters[3].requires_grad_(False), "requires_grad"),
        (lambda rig: rig.parameters[3].register_hook(lambda g: g), "a hook of a parameter"),
        (
            lambda rig: rig.parameters[3].register_post_accumulate_grad_hook(lambda p: None),
            "a hook of a parameter",
        ),
        (widen, "a setting"),
        (lambda rig: setattr(rig.parameters[3], "data", rig.parameters[3].data.clone()), "the memory"),
        (lambda rig: setattr(rig.model.head, "detach_one_to_one", True), "a setting"),
        (lambda rig: setattr(rig.model.head, "forward", rig.model.head.forward), "a forward method"),
        (lambda rig: setattr(rig.model, "neck", copy.deepcopy(rig.model.neck)), "a module was replaced"),
    ],
)
def test_a_changed_network_retires_its_recording_once(machine: Machine, change, words: str) -> None:
    rig = machine.rig()
    recorder = rig.record(machine.tape(), "network")
    rig.step(0)
    change(rig)
    with pytest.warns(UserWarning, match=words):
        rig.step(1)
    rig.step(2)  # a second warning would be an error
    outcome = recorder.outcomes()["capture.network"]
    assert words in outcome["retired"]
    assert (outcome["replays"], outcome["native_calls"]) == (1, 2)


def test_changed_rules_of_the_assignment_retire_the_loss(machine: Machine) -> None:
    rig = machine.rig()
    rig.record(machine.tape(), "loss")
    rig.step(0)
    rig.loss.assigner.topk_one_to_many = 3
    with pytest.warns(UserWarning, match="capture=loss: a setting of a module changed"):
        rig.step(1)


def test_a_new_weight_of_the_branches_reaches_the_recording(machine: Machine) -> None:
    eager, rig = machine.rig(), machine.rig()
    rig.record(machine.tape(), *OF_EVERY_TASK)
    for epoch in range(3):
        for one in (eager, rig):
            one.loss.set_epoch(epoch, 3)
            one.step(epoch)
    assert_equal(rig.state(), eager.state())


def test_other_shapes_and_evaluation_are_computed_natively(machine: Machine) -> None:
    rig = machine.rig()
    recorder = rig.record(machine.tape(), "network")
    rig.step(0)
    network = rig.objective.network
    with torch.no_grad():
        network(rig.images(1))
    network(rig.images(1)[:1])
    outcome = recorder.outcomes()["capture.network"]
    assert (outcome["replays"], outcome["native_calls"]) == (1, 2)
    assert outcome["native_reason"] == "inputs of another shape, type or layout"
    assert "retired" not in outcome


def test_another_precision_retires_the_recording(machine: Machine) -> None:
    rig = machine.rig()
    rig.record(machine.tape(), "network")
    rig.step(0)
    rig.precision = "bf16-mixed"
    with pytest.warns(UserWarning, match="the precision changed"):
        rig.step(1)


def test_a_failing_recording_puts_everything_back_and_names_the_flag() -> None:
    class Breaks(CallTape):
        def record(self, function):
            function()
            raise RuntimeError("operation not permitted when stream is capturing")

    for name in OF_EVERY_TASK:
        rig = Rig()
        rig.record(Breaks(), name)
        before = rig.state()
        with pytest.raises(RunError, match=rf"capture={name}\) failed: RuntimeError: operation not permitted"):
            rig.step(0)
        found = rig.state()
        if name != "network":  # the forward pass before is part of the step
            found, before = ({k: v for k, v in state.items() if "running" not in k} for state in (found, before))
            before = {k: v for k, v in before.items() if k in found}
        assert before
        assert_equal({k: found[k] for k in before}, before)
        assert rig.recorder.outcomes()[f"capture.{name}"]["retired"] == "recording failed: RuntimeError"


def test_late_backward_pass_is_refused(machine: Machine) -> None:
    rig = machine.rig()
    rig.record(machine.tape(), "network")
    first = rig.objective(rig.images(0), rig.targets(0))
    rig.objective(rig.images(1), rig.targets(1))
    with pytest.raises(RunError, match="capture=network: a backward pass came after a later forward pass"):
        first.total.backward()


def test_losses_are_copies(machine: Machine) -> None:
    rig = machine.rig()
    rig.record(machine.tape(), "network", "loss")
    first = rig.objective(rig.images(0), rig.targets(0))
    total, parts = first.total.item(), first.parts.tolist()
    first.total.backward()
    rig.step(1)
    assert first.total.item() == total
    assert first.parts.tolist() == parts


def test_loaded_optimizer_state_is_recorded_anew(machine: Machine) -> None:
    eager, rig = machine.rig(), machine.rig()
    recorder = rig.record(machine.tape(), "orthogonalization", "updates")
    for one in (eager, rig):
        one.step(0)
        kept = copy.deepcopy(one.optimizer.state_dict())
        one.step(1)
        one.optimizer.load_state_dict(kept)
        one.step(2)
    assert_equal(rig.state(), eager.state())
    assert recorder.outcomes()["capture.orthogonalization"]["recordings"] == 2


def test_each_group_of_parameters_has_recordings_of_its_own(machine: Machine) -> None:
    eager, rig = machine.rig(), machine.rig()
    for one in (eager, rig):
        hold_back(one)
        add_the_rest(one)
    recorder = rig.record(machine.tape(), "orthogonalization", "updates")
    for step in range(3):
        for one in (eager, rig):
            one.optimizer.param_groups[1]["lr"] = 0.01 * step
            one.step(step)
    assert_equal(rig.state(), eager.state())
    outcome = recorder.outcomes()["capture.updates"]
    assert (outcome["recordings"], outcome["replays"], outcome["native_calls"]) == (2, 2 * 3, 0)


def test_another_ceiling_of_the_norm_is_recorded_anew_and_none_is_native(machine: Machine) -> None:
    eager, rig = machine.rig(), machine.rig()
    recorder = rig.record(machine.tape(), "gradient_norm")
    for step, ceiling in enumerate((10.0, 0.5, None, 0.5)):
        for one in (eager, rig):
            one.config.trainer.clip_norm = ceiling
            one.step(step)
    assert_equal(rig.state(), eager.state())
    outcome = recorder.outcomes()["capture.gradient_norm"]
    assert (outcome["recordings"], outcome["replays"], outcome["native_calls"]) == (2, 3, 1)


def test_skipped_update_is_skipped_in_the_recording(machine: Machine) -> None:
    eager, rig = machine.rig(), machine.rig()
    rig.record(machine.tape(), *OF_EVERY_TASK)
    for step in range(4):
        for one in (eager, rig):
            one.optimizer.update_allowed.fill_(step != 2)
            one.step(step)
    assert_equal(rig.state(), eager.state())


def test_copies_are_not_recorded(machine: Machine) -> None:
    rig = machine.rig()
    rig.record(machine.tape(), *OF_EVERY_TASK)
    rig.step(0)
    copied = copy.deepcopy(rig.objective)
    assert type(copied.network) is CastOnce
    assert type(copied.network.network) is type(rig.model)
    assert copied.network.network is not rig.model
    assert copy.deepcopy(rig.optimizer).run_part is not rig.optimizer.run_part
    assert rig.model.state_dict().keys() == machine.rig().model.state_dict().keys()


def test_closed_recordings_compute_natively(machine: Machine) -> None:
    eager, rig = machine.rig(), machine.rig()
    recorder = rig.record(machine.tape(), *OF_EVERY_TASK)
    eager.step(0), rig.step(0)
    recorder.close()
    eager.step(1), rig.step(1)
    assert_equal(rig.state(), eager.state())


def freeze(rig: Rig) -> None:
    for parameter in rig.parameters[:10]:
        parameter.requires_grad_(False)


def thaw(rig: Rig) -> None:
    for parameter in rig.parameters[:10]:
        parameter.requires_grad_(True)


def hold_back(rig: Rig) -> None:
    """Leave the last parameters out of the optimizer."""
    rig.parameters = rig.parameters[:-6]
    rig.optimizer.param_groups[0]["params"] = rig.parameters


def add_the_rest(rig: Rig) -> None:
    rest = list(rig.model.parameters())[-6:]
    rig.optimizer.add_param_group({"params": rest})
    rig.parameters = rig.parameters + rest


def move_memory(rig: Rig) -> None:
    for parameter in rig.parameters:
        parameter.data = parameter.data.clone()


def replace_move(rig: Rig) -> None:
    stock = rig.optimizer.move

    def move_twice(flat, *directions):
        stock(flat, *directions)
        flat.parameters[0].mul_(2)

    rig.optimizer.move = move_twice


@pytest.mark.parametrize("names", [("gradient_norm",), ("updates",), OF_EVERY_TASK], ids="+".join)
@pytest.mark.parametrize(
    ("before", "during"), [(freeze, thaw), (hold_back, add_the_rest), (None, move_memory), (None, replace_move)]
)
@pytest.mark.filterwarnings("ignore:capture=(network|gradient_norm)")
def test_what_changes_during_a_fit_changes_recorded_steps_too(machine: Machine, names, before, during) -> None:
    eager, rig = machine.rig(), machine.rig()
    for one in (eager, rig):
        one.config.trainer.clip_norm = 0.5  # it matters which gradients are clipped
        if before is not None:
            before(one)
    rig.record(machine.tape(), *names)
    for step in range(3):
        for one in (eager, rig):
            if step == 1:
                during(one)
            one.step(step)
    assert_equal(rig.state(), eager.state())


def test_a_parameter_outside_of_the_optimizer_retires_the_network(machine: Machine) -> None:
    rig = machine.rig()
    hold_back(rig)
    recorder = rig.record(machine.tape(), "network")
    with pytest.warns(UserWarning, match="capture=network: a trainable parameter was not in the optimizer"):
        rig.step(0)
    assert recorder.outcomes()["capture.network"]["native_calls"] == 1


def test_closed_recordings_leave_nothing_on_the_optimizer(machine: Machine) -> None:
    rig = machine.rig()
    recorder = rig.record(machine.tape(), "updates")
    assert "run_part" in vars(rig.optimizer)
    recorder.close()
    assert "run_part" not in vars(rig.optimizer)


def test_recorded_parts_are_pickled_as_what_they_stand_for(machine: Machine) -> None:
    rig = machine.rig()
    rig.record(machine.tape(), *OF_EVERY_TASK)
    rig.step(0)
    network = pickle.loads(pickle.dumps(rig.objective)).network
    assert type(network) is CastOnce
    assert_equal(network.network.state_dict(), rig.model.state_dict())
    assert pickle.loads(pickle.dumps(rig.clip)) is clip_gradients


def test_memory_that_runs_out_while_recording_is_named() -> None:
    class Full(CallTape):
        def record(self, function):
            raise torch.OutOfMemoryError("full")

    rig = Rig()
    rig.record(Full(), "network")
    with pytest.raises(torch.OutOfMemoryError):
        rig.step(0)
    assert rig.recorder.outcomes()["capture.network"]["retired"] == "recording failed: out of memory"
