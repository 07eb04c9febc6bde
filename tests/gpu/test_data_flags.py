"""Runs on a CUDA device with colours changed there and with batches prepared ahead: the weights of a run without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import lucid_yolo as ly
from lucid_yolo.engine.train import train
from tests.engine.test_train import assert_equal, curve, read_state
from tests.gpu.test_training_step import SMALL, ForbidSynchronisation

pytestmark = pytest.mark.gpu


def small_run(run_dir: Path, *changes: str, callbacks: Any = ()) -> Any:
    return train(ly.compose([*SMALL, f"run_dir='{run_dir}'", "on_unmet=raise", *changes]), callbacks=callbacks)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("plain")
    names = ("32-true", "bf16-mixed", "16-mixed")
    return {name: small_run(folder / name, f"precision={name}").run_dir for name in names}


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("option", ["device", "device_native"])
def test_colours_on_the_device_give_the_same_weights(
    plain: dict[str, Path], tmp_path: Path, option: str, precision: str
) -> None:
    result = small_run(tmp_path / "run", f"hsv={option}", f"precision={precision}")
    assert_equal(read_state(plain[precision])["state_dict"], read_state(result.run_dir)["state_dict"])
    assert curve(result.run_dir) == curve(plain[precision])
    assert result.plan["hsv"].active == option
    assert result.plan["hsv"].outcome["calls"] > 0
    assert ("calls" in result.plan["hsv.fused"].outcome) == (option == "device")


@pytest.mark.parametrize("option", ["device", "device_native"])
def test_a_step_with_colours_never_waits_for_the_device(tmp_path: Path, option: str) -> None:
    watch = ForbidSynchronisation()
    try:
        small_run(tmp_path / "run", f"hsv={option}", callbacks=[watch])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert watch.steps == 6


def test_the_next_epoch_ahead_gives_the_same_weights(plain: dict[str, Path], tmp_path: Path) -> None:
    result = small_run(tmp_path / "run", "prefetch=epoch", "precision=bf16-mixed", "trainer.val_every=1")
    assert_equal(read_state(plain["bf16-mixed"])["state_dict"], read_state(result.run_dir)["state_dict"])
    assert result.plan["prefetch"].active == "epoch"
    assert result.plan["prefetch"].outcome["epochs"] == 3
