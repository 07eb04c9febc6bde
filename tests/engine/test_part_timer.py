"""Times of an optimizer's parts: what is heard, that numbers stay, and the order in a fit with recordings."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch

from lucid_yolo.config.compose import compose, to_root
from lucid_yolo.config.regions import REGIONS
from lucid_yolo.engine.part_timer import ClipTimer, PartTimer
from lucid_yolo.engine.profile import Pass, StepClock
from lucid_yolo.engine.step_parts import StepParts
from lucid_yolo.optim.adamw import AdamW
from lucid_yolo.optim.clip import clip_gradients
from lucid_yolo.optim.flat import FlatOptimizer, run_directly
from lucid_yolo.optim.musgd import MuSGD
from lucid_yolo.optim.sgd import SGD
from lucid_yolo.perf.capture.routine import RecordedClip, RecordedParts
from lucid_yolo.perf.plan import resolve
from tests.engine.tiny import learn, tiny_overrides
from tests.optim.helpers import bits, make_network, set_gradients
from tests.perf.capture.tapes import CallTape
from tests.perf.machines import CUDA


def make_optimizer(kind: type[FlatOptimizer] = MuSGD) -> FlatOptimizer:
    network = make_network()
    set_gradients(network, 0)
    return kind(network.parameters(), lr=0.1)


def test_each_part_is_timed_under_the_option_that_records_it() -> None:
    optimizer, twin = make_optimizer(), make_optimizer()
    events: list[Any] = []

    def slowly(part: str, *arguments: Any) -> Any:
        events.append(part)
        return run_directly(part, *arguments)

    optimizer.run_part = slowly
    seconds: list[float] = []

    def add(part: str, spent: float) -> None:
        events.append(f"= {part}")
        seconds.append(spent)

    timer = PartTimer(optimizer, wait=lambda: events.append("wait"), add=add)
    optimizer.step(), twin.step()
    assert events == [
        *("wait", "orthogonalization", "wait", "= orthogonalization"),
        *("wait", "move", "wait", "= updates"),
    ]
    assert all(spent > 0 for spent in seconds)
    for mine, theirs in zip(*(o.param_groups[0]["params"] for o in (optimizer, twin)), strict=True):
        assert torch.equal(bits(mine), bits(theirs))
    timer.close()
    assert optimizer.run_part is slowly


@pytest.mark.parametrize("kind", [SGD, AdamW])
def test_optimizers_without_parts_are_silent(kind: type[FlatOptimizer]) -> None:
    optimizer, heard = make_optimizer(kind), []
    PartTimer(optimizer, wait=lambda: heard.append("wait"), add=lambda *_: heard.append("add"))
    optimizer.step()
    assert heard == []


def test_closing_leaves_the_optimizer_as_it_was() -> None:
    optimizer = make_optimizer()
    timer = PartTimer(optimizer, wait=lambda: None, add=lambda *_: None)
    assert vars(optimizer)["run_part"] is timer
    timer.close()
    assert "run_part" not in vars(optimizer)
    timer.close()
    timer = PartTimer(optimizer, wait=lambda: None, add=lambda *_: None)
    optimizer.run_part = run_directly  # by someone else, later
    timer.close()
    assert vars(optimizer)["run_part"] is run_directly


def test_clipping_is_timed_and_left_as_it_was() -> None:
    network = make_network()
    set_gradients(network, 0)
    events: list[Any] = []

    def clip(parameters: Any, max_norm: float | None) -> torch.Tensor:
        events.append(max_norm)
        return clip_gradients(parameters, max_norm)

    module: Any = SimpleNamespace(clip=clip)
    timer = ClipTimer(module, wait=lambda: events.append("wait"), add=lambda name, spent: events.append((name, spent)))
    squares = sum(float(p.grad.double().square().sum()) for p in network.parameters())
    assert module.clip(list(network.parameters()), 10.0).item() == pytest.approx(squares**0.5, rel=1e-5)
    *before, (name, spent) = events
    assert (before, name) == (["wait", 10.0, "wait"], "gradient_norm")
    assert spent > 0
    timer.close()
    assert module.clip is clip
    timer = ClipTimer(module, wait=lambda: None, add=lambda *_: None)
    module.clip = clip_gradients  # by someone else, later
    timer.close()
    assert module.clip is clip_gradients


class Watch(L.Callback):
    """What runs the optimizer's parts and what clips, step by step."""

    def __init__(self) -> None:
        self.runners: list[Any] = []
        self.clips: list[Any] = []
        self.optimizer: Any = None
        self.module: Any = None

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.module, self.optimizer = pl_module, pl_module.optimizer
        self.runners.append(self.optimizer.run_part)
        self.clips.append(pl_module.clip)


def test_recordings_are_timed_from_outside_and_do_not_fall_back(tmp_path: Path) -> None:
    short = ("task=segment", "data.recipe.epochs=9", "data.recipe.val_every=9", f"run_dir='{tmp_path / 'run'}'")
    cuda = ("trainer.accelerator=auto", "precision=32-true", f"capture={'+'.join(REGIONS)}")
    root = to_root(compose(tiny_overrides(*short, *cuda)))
    parts = StepParts(resolve(root, CUDA, None), root, tape=CallTape())
    clock, watch = StepClock(torch.device("cpu"), warmup=1, steps=3), Watch()
    learn(compose(tiny_overrides(*short)), [clock, watch, parts])
    assert clock.now is Pass.DONE
    assert {type(runner) for runner in watch.runners} == {PartTimer}
    assert len({id(runner) for runner in watch.runners}) == 1  # not one around another in each epoch
    assert type(watch.runners[0]._run) is RecordedParts
    assert {type(clip) for clip in watch.clips} == {ClipTimer}
    assert type(watch.clips[0]._clip) is RecordedClip
    assert all(parts.plan[f"capture.{name}"].active for name in REGIONS)
    steps = len(watch.runners)
    assert steps == 1 + 3 + 3 + 1
    outcomes = parts.outcomes()
    assert outcomes["capture.network"]["replays"] == steps
    assert outcomes["capture.heads"]["replays"] == 5 * steps
    assert outcomes["capture.updates"]["replays"] == steps
    assert outcomes["capture.orthogonalization"]["replays"] == steps
    assert outcomes["capture.gradient_norm"]["replays"] == steps
    assert "run_part" not in vars(watch.optimizer)
    assert watch.module.clip is clip_gradients
