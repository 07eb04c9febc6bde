"""Recorded and compiled parts inside Lightning's loop, without CUDA: on a tape of ours, and with Dynamo's backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

import lucid_yolo as ly
from lucid_yolo.config.compose import to_root
from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.regions import OF_EVERY_TASK
from lucid_yolo.engine.step_parts import StepParts
from lucid_yolo.nn import max_pool
from lucid_yolo.nn.cast import CastOnce
from lucid_yolo.nn.depthwise import DepthwiseConv2d, StockFilters
from lucid_yolo.nn.max_pool import MaxPool
from lucid_yolo.nn.norms import STOCK, Normed
from lucid_yolo.perf.depthwise import TritonFilters
from lucid_yolo.perf.objective import Objective
from lucid_yolo.perf.plan import resolve
from tests.engine.tiny import TWO_EPOCHS, learn, read_state, tiny_config, tiny_overrides
from tests.perf.capture.tapes import CallTape
from tests.perf.machines import CUDA

ALL = f"capture={'+'.join(OF_EVERY_TASK)}"
Eager = Callable[..., dict[str, Any]]
STEPS = 4


@pytest.fixture(scope="module")
def eager(plain_run: Callable[..., Path]) -> Eager:
    """What a run that records and compiles nothing ends with."""
    return lambda *changes: read_state(plain_run(*changes))


def run(tmp_path: Path, name: str, *overrides: str, callbacks: Any = ()) -> dict[str, Any]:
    result = learn(tiny_config(tmp_path / name, *TWO_EPOCHS, *overrides), callbacks)
    assert result.status == "finished"
    return read_state(result.run_dir)


def parts_for(*overrides: str, depthwise: str = "depthwise=stock", **settings: Any) -> StepParts:
    """What would be installed on a CUDA machine."""
    common = (*TWO_EPOCHS, "trainer.accelerator=auto", "precision=32-true", depthwise)
    root = to_root(ly.compose(tiny_overrides(*common, *overrides)))
    return StepParts(resolve(root, CUDA, None), root, **settings)


def test_depthwise_convolutions_of_network_and_average_are_ours_while_it_lasts(tmp_path: Path, eager: Eager) -> None:
    class Look(L.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            networks = (pl_module.model, pl_module.ema.module)
            self.seen = {type(layer.filters) for network in networks for layer in depthwise_layers(network)}
            self.module = pl_module

    parts, look = parts_for(depthwise="depthwise=auto"), Look()
    assert_same(run(tmp_path, "ours", callbacks=[parts, look]), eager())  # on a CPU the kernels are torch's
    assert look.seen == {TritonFilters}
    assert parts.outcomes() == {"depthwise": {"build_seconds": 0.0}}
    for network in (look.module.model, look.module.ema.module):
        assert {type(layer.filters) for layer in depthwise_layers(network)} == {StockFilters}


def depthwise_layers(network: torch.nn.Module) -> list[DepthwiseConv2d]:
    found = [module for module in network.modules() if isinstance(module, DepthwiseConv2d)]
    assert found
    return found


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one["state_dict"].keys() == other["state_dict"].keys()
    assert all(torch.equal(value, other["state_dict"][name]) for name, value in one["state_dict"].items())
    states = [checkpoint["optimizer_states"][0]["state"] for checkpoint in (one, other)]
    assert all(torch.equal(s["momentum_buffer"], states[1][i]["momentum_buffer"]) for i, s in states[0].items())


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_run_of_recorded_parts_equals_the_eager_one(tmp_path: Path, accumulate: int, eager: Eager) -> None:
    # With 3 there are 4 batches an epoch: an update of one batch at its end.
    settings = {1: (), 3: ("trainer.accumulate=3", "data.options.num_train=14")}[accumulate]
    parts = parts_for(ALL, *settings, tape=CallTape())
    recorded = run(tmp_path, "recorded", *settings, callbacks=[parts])
    assert_same(recorded, eager(*settings))
    outcomes = parts.outcomes()
    assert {name: outcome["native_calls"] for name, outcome in outcomes.items()} == {
        f"capture.{name}": 0 for name in OF_EVERY_TASK
    }
    batches, updates = {1: (STEPS, STEPS), 3: (8, 4)}[accumulate]
    assert outcomes["capture.network"]["replays"] == batches
    for name in ("gradient_norm", "orthogonalization", "updates"):
        assert outcomes[f"capture.{name}"]["replays"] == updates


@pytest.mark.parametrize(
    ("task", "capture", "replays"),
    [("segment", "network+heads", (STEPS, 5 * STEPS)), ("keypoints", "network", (3 * STEPS,))],
)
def test_a_run_of_a_network_in_parts_equals_the_eager_one(
    tmp_path: Path, task: str, capture: str, replays: tuple[int, ...], eager: Eager
) -> None:
    parts = parts_for(f"task={task}", f"capture={capture}", tape=CallTape())
    recorded = run(tmp_path, "recorded", f"task={task}", callbacks=[parts])
    assert_same(recorded, eager(f"task={task}"))
    outcomes = [parts.outcomes()[f"capture.{name}"] for name in capture.split("+")]
    assert tuple(outcome["replays"] for outcome in outcomes) == replays
    assert all(outcome["native_calls"] == 0 for outcome in outcomes)


def test_a_run_of_a_compiled_step_equals_the_eager_one(tmp_path: Path, eager: Eager) -> None:
    parts = parts_for("compile=step", "capture=gradient_norm+updates", tape=CallTape(), backend="eager")
    compiled = run(tmp_path, "compiled", callbacks=[parts])
    assert_same(compiled, eager())
    assert parts.outcomes()["compile"]["graphs"] == 1
    assert parts.outcomes()["capture.gradient_norm"]["replays"] == STEPS


def test_a_run_with_compiled_losses_and_a_recorded_network_equals_the_eager_one(tmp_path: Path, eager: Eager) -> None:
    parts = parts_for("compile=loss", "capture=network", tape=CallTape(), backend="eager")
    compiled = run(tmp_path, "compiled", callbacks=[parts])
    assert_same(compiled, eager())
    assert parts.outcomes()["compile"]["graphs"] == 1
    assert parts.outcomes()["capture.network"]["replays"] == STEPS


def test_kernels_that_cannot_be_compiled_give_way_to_torch_and_all_is_put_back_at_the_end(
    tmp_path: Path, eager: Eager
) -> None:
    class Watch(L.Callback):
        module: Any = None

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.module = pl_module

    # A real toolchain, and maps of a processor.
    watch, parts = Watch(), parts_for(ALL, "kernels=fused", tape=CallTape())
    with pytest.warns(UserWarning, match="kernels: the fused kernels could not be compiled") as caught:
        fused = run(tmp_path, "fused", callbacks=[watch, parts])
    assert len([w for w in caught if "fused kernels" in str(w.message)]) == 1
    assert_same(fused, eager())
    assert parts.plan["kernels"].active == "fused"
    assert list(parts.outcomes()["kernels"]) == ["failure"]
    assert parts.outcomes()["capture.network"]["native_calls"] == 0
    assert type(watch.module.objective) is Objective
    assert type(watch.module.objective.network) is CastOnce
    assert watch.module.clip.__name__ == "clip_gradients"
    modules = list(watch.module.model.modules())
    assert all(unit.norms is STOCK for unit in modules if isinstance(unit, Normed))
    assert [pool.pools for pool in modules if isinstance(pool, MaxPool)] == [max_pool.STOCK]


def test_what_was_built_is_judged_before_anything_is_installed(tmp_path: Path) -> None:
    class Hook(L.Callback):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            pl_module.model.neck.register_forward_hook(lambda *_: None)

    parts = parts_for("capture=network+loss", tape=CallTape())
    with pytest.warns(UserWarning, match="hooks"):
        run(tmp_path, "run", "trainer.max_steps=1", callbacks=[Hook(), parts])
    assert parts.plan["capture.network"].active is False
    assert parts.plan["capture.loss"].active is True
    assert set(parts.outcomes()) == {"capture.loss"}
    strict = parts_for("capture=network+loss", "on_unmet=raise", tape=CallTape())
    with pytest.raises(ConfigError, match="capture=network would replay without calling hooks"):
        run(tmp_path, "strict", callbacks=[Hook(), strict])
