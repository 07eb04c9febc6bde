"""The eager step on a CUDA device: no synchronisation, few kernels, the same bits twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

from lucid_yolo.bench.step import StepRig, Workload, count_kernels
from lucid_yolo.config.compose import compose, to_root
from lucid_yolo.engine.train import train
from tests.gpu.conftest import Compose, composing
from tests.gpu.watch import ForbidSynchronisation

pytestmark = pytest.mark.gpu

SMALL = [
    "data=shapes",
    "data.options.num_train=32",
    "data.options.num_val=8",
    "data.num_workers=2",
    "data.augment.mosaic=1.0",
    "data.recipe.epochs=4",
    "data.recipe.val_every=4",
    "logger.tensorboard=false",
    "logger.pictures=false",
]


@pytest.fixture
def small(tmp_path: Path) -> Compose:
    return composing(SMALL, tmp_path)


@pytest.mark.parametrize(
    ("precision", "optimizer"),
    [("32-true", "musgd"), ("bf16-mixed", "musgd"), ("bf16-mixed", "sgd"), ("bf16-mixed", "adamw")],
)
def test_step_never_waits_for_the_device(small: Compose, precision: str, optimizer: str) -> None:
    watch = ForbidSynchronisation()
    try:
        result = train(small(f"precision={precision}", f"optimizer={optimizer}"), callbacks=[watch])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert result.status == "finished"
    assert watch.steps == 6
    assert result.memory["peak_allocated_mib"] > 0


def test_a_planted_synchronisation_is_seen(small: Compose) -> None:
    class Reads(ForbidSynchronisation):
        def on_before_optimizer_step(self, trainer: L.Trainer, module: Any, *_: Any) -> None:
            module.step_log._rows.sum().item()

    try:
        with pytest.raises(RuntimeError, match="synchroniz"):
            train(small(), callbacks=[Reads()])
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_half_precision_with_a_scaler_trains(small: Compose) -> None:
    result = train(small("precision=16-mixed"))
    assert result.status == "finished"
    assert result.plan["precision"].active == "16-mixed"


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_deterministic_run_repeats_bit_for_bit(small: Compose, precision: str) -> None:
    states = []
    for run in ("first", "second"):
        result = train(small(f"precision={precision}", run=run))
        states.append(torch.load(result.run_dir / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"])
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


@pytest.mark.parametrize("batch", [4, 16, 64])
def test_nano_step_launches_few_kernels(batch: int) -> None:
    config = to_root(compose())
    rig = StepRig(Workload(batch=batch), config)
    for _ in range(3):
        rig.step()
    assert count_kernels(rig) <= 2600
