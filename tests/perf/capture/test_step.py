"""A whole step as one recording, on a small network: what is replayed, what is recorded anew, and what ends it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from lucid_yolo.config.errors import RunError
from lucid_yolo.data.batch import Batch, Targets
from lucid_yolo.optim.adamw import AdamW
from lucid_yolo.optim.clip import clip_gradients
from lucid_yolo.optim.ema import Ema
from lucid_yolo.optim.flat import FlatOptimizer
from lucid_yolo.optim.musgd import MuSGD
from lucid_yolo.optim.sgd import SGD
from lucid_yolo.perf.capture.region import MAX_RECORDINGS
from lucid_yolo.perf.capture.step import RecordedStep
from lucid_yolo.perf.objective import Mark, StepLosses, unheard
from tests.perf.capture.tapes import CallTape, OperatorTape

OPTIMIZERS: dict[str, Callable[[nn.Module], FlatOptimizer]] = {
    "musgd": lambda model: MuSGD(model.parameters(), lr=0.02),
    "sgd": lambda model: SGD(model.parameters(), lr=0.02, momentum=0.9),
    "adamw": lambda model: AdamW(model.parameters(), lr=0.02, betas=(0.9, 0.99), eps=1e-8),
}


class Loss(nn.Module):
    """Asks the network for the first coordinates of the boxes, weighted by a buffer that changes with the epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("alpha", torch.ones(()))

    def forward(self, maps: Tensor, targets: Targets) -> Tensor:
        wanted = (targets.boxes[:, 0] * targets.valid).sum() * self.alpha
        return (maps.mean() - wanted).square()


class Step:
    """A step of a network of two layers; what a training module is to a recording."""

    def __init__(self, optimizer: str = "musgd") -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), nn.Conv2d(4, 2, 1)).train()
        self.loss = Loss()
        self.ema = Ema(self.model, decay=0.9, ramp=10.0)
        self.optimizer = OPTIMIZERS[optimizer](self.model)
        self.optimizer.update_allowed = torch.ones((), dtype=torch.bool)
        self.computed = 0

    def compute_losses(self, batch: Batch, mark: Mark = unheard) -> StepLosses:
        self.computed += 1
        total = self.loss(self.model(batch.images_nchw() * (1 / 255) * batch.gains.view(-1, 3, 1, 1)), batch.targets)
        return StepLosses(total, torch.stack((total, 2 * total)))

    def complete_step(self, batch: Batch) -> StepLosses:
        self.optimizer.zero_grad()
        losses = self.compute_losses(batch)
        losses.total.backward()
        self.finish(losses.total.detach())
        return StepLosses(losses.total.detach(), losses.parts.detach(), is_complete=True)

    def finish(self, total: Tensor) -> None:
        """What follows the backward pass; a step whose loss is not finite changes nothing."""
        assert self.optimizer.update_allowed is not None
        clip_gradients(list(self.model.parameters()), 0.5)
        self.optimizer.update_allowed.copy_(total.isfinite())
        self.optimizer.step()
        self.ema.update(self.model, allowed=self.optimizer.update_allowed)

    def changed_by_step(self) -> list[Tensor]:
        held = (t for module in (self.model, self.ema) for t in (*module.parameters(), *module.buffers()))
        return [*held, self.optimizer.update_allowed]

    def state(self) -> dict[str, Tensor]:
        slots = self.optimizer.state_dict()["state"]
        held = {f"{key}.{name}": value for key, slot in slots.items() for name, value in slot.items()}
        return {**self.model.state_dict(), **{f"ema.{k}": v for k, v in self.ema.state_dict().items()}, **held}


def make_batch(seed: int, rows: int = 4, images: int = 2) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    targets = Targets(
        image_index=torch.zeros(rows, dtype=torch.int64),
        classes=torch.zeros(rows, dtype=torch.int64),
        boxes=torch.rand(rows, 4, generator=generator),
        valid=torch.arange(rows) < rows - 1,
    )
    pixels = torch.randint(0, 256, (images, 8, 8, 3), generator=generator, dtype=torch.uint8)
    return Batch(pixels, targets, 0.5 + torch.rand(images, 3, generator=generator), torch.arange(images))


def record(step: Step, tape: CallTape | None = None, warmup: int = 2) -> RecordedStep:
    return RecordedStep(step, tape=tape or OperatorTape(), device=torch.device("cpu"), warmup=warmup)


def train(step: Step, function: Callable[[Batch], StepLosses], batch: Batch, lr: float = 0.02) -> StepLosses:
    """One step as the training loop makes it: whatever the function leaves to do follows."""
    step.optimizer.param_groups[0]["lr"] = lr
    losses = function(batch)
    if not losses.is_complete:
        step.optimizer.zero_grad()
        losses.total.backward()
        step.finish(losses.total.detach())
    return losses


def assert_same(one: Step, other: Step) -> None:
    mine, theirs = one.state(), other.state()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in mine.items())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_replayed_steps_equal_eager_ones_whatever_the_host_sets(optimizer: str) -> None:
    eager, step = Step(optimizer), Step(optimizer)
    recorded = record(step)
    handed_out = []
    for seed in range(6):
        rows = (4, 2, 4, 7, 4, 7)[seed]  # fewer rows fit; more of them are recorded once more
        for one, function in ((eager, eager.compute_losses), (step, recorded)):
            one.loss.alpha.fill_(1 + seed / 2)
            losses = train(one, function, make_batch(seed, rows), lr=0.02 / (1 + seed))
            handed_out.append((losses.total.detach(), losses.parts.detach()))
        assert_same(step, eager)
    for mine, theirs in zip(handed_out[1::2], handed_out[0::2], strict=True):
        assert torch.equal(mine[0], theirs[0])
        assert torch.equal(mine[1], theirs[1])
    outcome = recorded.outcome()
    assert (outcome["recordings"], outcome["replays"], outcome["native_calls"]) == (2, 6, 0)
    assert outcome["replayed_share"] == 1.0
    assert all(parameter.grad is None for parameter in step.model.parameters())


def test_the_recording_holds_every_operator_and_no_python() -> None:
    step = Step()
    recorded = record(step, warmup=2)
    train(step, recorded, make_batch(0))
    assert step.computed == 1 + 2 + 1  # to lay the optimizer out, to warm up, to record
    train(step, recorded, make_batch(1))
    assert step.computed == 4


def test_a_step_that_is_not_allowed_changes_nothing() -> None:
    step = Step()
    recorded = record(step)
    train(step, recorded, make_batch(0))
    before = {name: value.clone() for name, value in step.state().items()}
    step.loss.alpha.fill_(float("inf"))
    assert not train(step, recorded, make_batch(1)).total.isfinite()
    after = step.state()
    statistics = {f"1.{name}" for name, _ in step.model[1].named_buffers()}  # of the forward pass, as in eager
    assert all(torch.equal(value, after[name]) for name, value in before.items() if name not in statistics)


def test_a_setting_that_the_host_holds_and_a_loaded_state_are_recorded_anew() -> None:
    eager, step = Step(), Step()
    recorded = record(step)
    saved = copy.deepcopy(eager.optimizer.state_dict())
    for seed, change in enumerate((None, "weights", None, "load", None)):
        for one, function in ((eager, eager.compute_losses), (step, recorded)):
            if change == "weights":
                one.optimizer.param_groups[0]["sgd_weight"] = 0.25
            if change == "load":
                one.optimizer.load_state_dict(copy.deepcopy(saved))
            train(one, function, make_batch(seed))
        assert_same(step, eager)
    assert (recorded.account.recordings, recorded.account.retired) == (3, "")


def replace_part(step: Step) -> None:
    step.model[2] = nn.Identity()


CHANGES: dict[str, tuple[Callable[[Step], object], str]] = {
    "hook": (lambda step: step.model[0].register_forward_hook(lambda *_: None), "a hook was added or removed"),
    "part": (replace_part, "a module was replaced"),
    "frozen": (lambda step: step.model[0].weight.requires_grad_(False), "requires_grad of a parameter changed"),
    "storage": (lambda step: setattr(step.loss, "alpha", step.loss.alpha.clone()), "the memory of a parameter"),
    "mode": (lambda step: step.model[1].eval(), "between training and evaluation"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_ends_the_recording_once_with_its_reason(name: str) -> None:
    change, reason = CHANGES[name]
    eager, step = Step(), Step()
    recorded = record(step)
    train(eager, eager.compute_losses, make_batch(0))
    train(step, recorded, make_batch(0))
    for one in (eager, step):
        change(one)

    def train_both(seeds: Sequence[int]) -> None:
        for seed in seeds:
            train(eager, eager.compute_losses, make_batch(seed))
            train(step, recorded, make_batch(seed))

    with pytest.warns(UserWarning, match=f"capture=step: .*{reason}") as caught:
        train_both(seeds=(1, 2))
    assert len(caught) == 1
    assert_same(step, eager)
    outcome = recorded.outcome()
    assert (outcome["replays"], outcome["native_calls"], outcome["replayed_share"]) == (1, 2, 0.3333)
    assert reason in outcome["retired"]


def test_another_precision_ends_it() -> None:
    step = Step()
    recorded = record(step)
    train(step, recorded, make_batch(0))
    with pytest.warns(UserWarning, match="the precision changed"), torch.autocast("cpu", torch.bfloat16):
        recorded(make_batch(1))


def test_a_batch_of_another_shape_is_computed_natively_and_nothing_grows() -> None:
    eager, step = Step(), Step()
    recorded = record(step)
    for seed, images in enumerate((2, 1, 2, 1, 1)):
        train(eager, eager.compute_losses, make_batch(seed, images=images))
        train(step, recorded, make_batch(seed, images=images))
        assert_same(step, eager)
    assert (recorded.account.recordings, recorded.account.replays, recorded.account.native_calls) == (1, 2, 3)
    assert recorded.account.native_reason == "a batch of another shape, type or layout"


def test_it_gives_up_where_every_batch_is_larger_than_the_one_before() -> None:
    step = Step()
    recorded = record(step, warmup=1)
    for seed in range(MAX_RECORDINGS):
        train(step, recorded, make_batch(seed, rows=4 + seed))
    with pytest.warns(UserWarning, match=f"outgrew {MAX_RECORDINGS} recordings"):
        train(step, recorded, make_batch(9, rows=40))
    assert (recorded.account.recordings, recorded.account.native_calls) == (MAX_RECORDINGS, 1)


def test_in_evaluation_mode_nothing_is_recorded() -> None:
    step = Step()
    step.model.eval()
    recorded = record(step)
    assert not recorded(make_batch(0)).is_complete
    assert (recorded.account.recordings, recorded.account.native_reason) == (0, "evaluation mode")


class ReadsBack(Step):
    def complete_step(self, batch: Batch) -> StepLosses:
        losses = super().complete_step(batch)
        float(losses.total)  # no graph can hold it
        return losses


def test_a_recording_that_fails_raises_and_leaves_everything_as_it_was() -> None:
    step = ReadsBack()
    before = {name: value.clone() for name, value in step.state().items()}
    torch.manual_seed(3)
    random = torch.get_rng_state()
    with pytest.raises(RunError, match=r"Recording step \(capture=step\) failed"):
        record(step)(make_batch(0))
    after = step.state()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(parameter.grad is None for parameter in step.model.parameters())


class LooksForHistory(Step):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[bool] = []

    def complete_step(self, batch: Batch) -> StepLosses:
        self.found += [has_history(parameter) for parameter in self.model.parameters()]
        return super().complete_step(batch)


def has_history(parameter: Tensor) -> bool:
    """Whether something that was computed before holds the node that takes the parameter's gradient."""
    for _ in range(2):
        node = parameter.view_as(parameter).grad_fn.next_functions[0][0]
        if "seen" in node.metadata:
            return True
        node.metadata["seen"] = True  # lives as long as the node does
        del node
    return False


def test_a_history_is_seen() -> None:
    parameter = nn.Parameter(torch.ones(2))
    assert not has_history(parameter)
    computed = 2 * parameter
    assert has_history(parameter)
    assert computed.grad_fn is not None


def test_nothing_ties_gradients_to_the_stream_of_the_run_while_it_is_recorded() -> None:
    step = LooksForHistory()
    record(step)(make_batch(0))
    assert len(step.found) == 3 * 6  # twice to warm up, once to record
    assert not any(step.found)


def test_a_copy_is_the_step_without_a_recording() -> None:
    step = Step()
    recorded = record(step)
    train(step, recorded, make_batch(0))
    copied = copy.deepcopy(recorded)
    assert copied.__func__ is Step.compute_losses
    assert copied.__self__ is not step
    recorded.close()
    assert not recorded(make_batch(1)).is_complete
    assert recorded.account.native_reason == "the fit is over"
