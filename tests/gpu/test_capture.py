"""Recordings as CUDA graphs, in steps of real size and in whole runs."""

from __future__ import annotations

import copy
import gc
import json
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import nn

import lucid_yolo as ly
from lucid_yolo.config.errors import RunError
from lucid_yolo.config.regions import OF_EVERY_TASK, REGIONS
from lucid_yolo.engine.train import train
from lucid_yolo.nn.cast import CastOnce
from lucid_yolo.perf.capture.function import FunctionRegion
from lucid_yolo.perf.capture.gradients import GradientPlaces
from lucid_yolo.perf.capture.tape import CudaTape
from tests.gpu.conftest import Compose
from tests.gpu.watch import ForbidSynchronisation
from tests.perf.capture.rig import Rig, assert_equal

pytestmark = pytest.mark.gpu

ALL = "+".join(OF_EVERY_TASK)


def last_state(result: Any) -> dict[str, Any]:
    return torch.load(result.run_dir / "checkpoints" / "last.ckpt", weights_only=True, map_location="cpu")


def assert_same_run(one: Any, other: Any) -> None:
    mine, theirs = last_state(one), last_state(other)
    assert_equal(mine["state_dict"], theirs["state_dict"])
    for key, state in mine["optimizer_states"][0]["state"].items():
        assert_equal(state, theirs["optimizer_states"][0]["state"][key])


@pytest.mark.parametrize("workload", ["detect", "segment n", "keypoints n", "obb n"])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_twenty_steps_of_real_size_are_equal_bit_for_bit(deterministic: None, precision: str, workload: str) -> None:
    rigs = [Rig(workload, device="cuda", size=640, batch=4, precision=precision) for _ in range(2)]
    names = REGIONS if workload == "segment n" else OF_EVERY_TASK
    recorder = rigs[1].record(CudaTape(torch.device("cuda")), *names, warmup=3)
    for step in range(20):
        count = (0, 9, 33)[step % 3]  # an empty batch among them
        found = [rig.step(step, rig.targets(step, count, 64)) for rig in rigs]
        assert torch.equal(found[0][0], found[1][0]), step
        assert torch.equal(found[0][1], found[1][1]), step
    assert_equal(rigs[1].state(), rigs[0].state())
    for outcome in recorder.outcomes().values():
        assert outcome["native_calls"] == 0


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_recorded_run_equals_the_eager_one(small: Compose, precision: str, accumulate: int) -> None:
    settings = (f"precision={precision}", f"trainer.accumulate={accumulate}")
    eager = train(small(*settings, run="eager"))
    recorded = train(small(*settings, f"capture={ALL}", "on_unmet=raise", run="recorded"))
    assert_same_run(recorded, eager)
    assert recorded.metrics == eager.metrics
    plan = json.loads((recorded.run_dir / "summary.json").read_text())["plan"]
    for name in OF_EVERY_TASK:
        row = plan[f"capture.{name}"]
        assert row["active"] is True
        calls = row["outcome"]["replays"] + row["outcome"]["native_calls"]
        assert row["outcome"]["replays"] >= 0.99 * calls > 0
        assert "retired" not in row["outcome"]


@pytest.mark.parametrize("name", OF_EVERY_TASK)
def test_each_part_alone_equals_the_eager_run(small: Compose, name: str) -> None:
    eager = train(small("trainer.max_epochs=1", run="eager"))
    recorded = train(small("trainer.max_epochs=1", f"capture={name}", "on_unmet=raise", run="recorded"))
    assert_same_run(recorded, eager)


def test_interrupted_and_resumed_recorded_run_equals_the_eager_one(small: Compose, tmp_path: Path) -> None:
    class Stop(L.Callback):
        def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
            if trainer.global_step == 14:
                raise KeyboardInterrupt

    eager = train(small(run="eager"))
    train(small(f"capture={ALL}", run="recorded"), callbacks=[Stop()])
    resumed = train(ly.compose([f"resume={tmp_path / 'recorded'}"]))
    assert resumed.status == "finished"
    assert_same_run(resumed, eager)


def test_two_fits_in_one_process_leave_nothing_behind(small: Compose) -> None:
    first = train(small(f"capture={ALL}", run="first"))
    gc.collect()
    left = torch.cuda.memory_allocated()
    second = train(small(f"capture={ALL}", run="second"))
    gc.collect()
    assert_same_run(second, first)
    assert torch.cuda.memory_allocated() <= left + 2**20


def test_a_recorded_step_never_waits_for_the_device(small: Compose) -> None:
    watch = ForbidSynchronisation()
    try:
        train(small(f"capture={ALL}"), callbacks=[watch])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert watch.steps == 28


def test_memory_does_not_grow_over_changing_shapes(deterministic: None) -> None:
    rig = Rig(device="cuda", size=128, batch=4, precision="bf16-mixed")
    rig.record(CudaTape(torch.device("cuda")), *OF_EVERY_TASK)
    reserved = []
    for step in range(200):
        rows = (16, 32, 64)[step % 3]
        rig.step(step, rig.targets(step, step % 15, rows))
        if step >= 20:
            reserved.append(torch.cuda.memory_reserved())
    assert max(reserved) == reserved[0]


class ReadsBack(nn.Module):
    """A layer that no graph can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, device="cuda"))
        self.register_buffer("calls", torch.zeros((), device="cuda"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return x * self.weight * float(x.sum())


def test_what_cannot_be_recorded_raises_and_leaves_the_device_usable() -> None:
    module = ReadsBack()
    region = FunctionRegion(
        "network", module, tape=CudaTape(torch.device("cuda")), device=torch.device("cuda"), warmup=2
    )
    with pytest.raises(RunError, match="Recording network"):
        region(torch.ones(3, device="cuda"))
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert module.calls.item() == 0
    out = region(torch.ones(3, device="cuda"))  # natively from here on
    out.sum().backward()
    assert torch.equal(module.weight.grad, torch.full((3,), 3.0, device="cuda"))
    assert len(torch.rand(4, device="cuda").unique()) == 4


def test_an_older_recording_that_becomes_garbage_does_not_break_a_new_one() -> None:
    device, thresholds = torch.device("cuda"), gc.get_threshold()
    x = torch.ones(4, device=device)

    def make_objects() -> list[torch.Tensor]:
        gc.set_threshold(1)  # the collector, were it on, would run now
        assert len([[] for _ in range(1000)]) == 1000
        return [x + 2]

    gc.collect()
    gc.set_threshold(1_000_000)
    try:
        old: dict[str, object] = {"track": CudaTape(device).record(lambda: [x + 1])}
        old["itself"] = old
        del old
        track = CudaTape(device).record(make_objects)
    finally:
        gc.set_threshold(*thresholds)
    assert gc.isenabled()
    track.replay()
    assert torch.equal(track.outputs[0], torch.full((4,), 3.0, device=device))


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_gradients_are_copied_with_strides_that_have_a_fast_path(precision: str) -> None:
    rig = Rig(device="cuda", size=64, precision=precision)
    rig.gradients(0)
    gathered = GradientPlaces(rig.parameters).gather()
    assert len(gathered.elsewhere) == len(rig.parameters)
    assert [place.stride() for place in gathered.copies] == [gradient.stride() for gradient in gathered.elsewhere]


def test_random_numbers_of_a_recording_differ_by_replay_and_repeat_by_seed() -> None:
    class Noise(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * torch.rand_like(x)

    def draw() -> list[torch.Tensor]:
        torch.manual_seed(5)
        device = torch.device("cuda")
        region = FunctionRegion("network", Noise(), tape=CudaTape(device), device=device, warmup=2)
        x = torch.ones(8, device="cuda", requires_grad=True)
        return [region(x).detach().clone() for _ in range(3)]

    first, second = draw(), draw()
    assert not torch.equal(first[0], first[1])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_copied_step_has_no_recording(deterministic: None) -> None:
    rig = Rig(device="cuda", size=64, batch=2)
    rig.record(CudaTape(torch.device("cuda")), *OF_EVERY_TASK)
    rig.step(0)
    assert isinstance(copy.deepcopy(rig.objective).network, CastOnce)
