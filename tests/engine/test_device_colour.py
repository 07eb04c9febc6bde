"""Runs whose workers leave the colours to the device: the weights of a run that does not.

On a processor the plan keeps the colours with the workers; here it is told otherwise, after it was made.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.engine.test_train import assert_equal, curve
from tests.engine.tiny import learn, read_state, tiny_config

RECIPE = ("data.options.num_train=6", "trainer.max_epochs=2", "data.augment.mixup=0.5")
PICTURES = "logger.pictures=true"


def tiny_run(run_dir: Path, *changes: str):
    return learn(tiny_config(run_dir, *RECIPE, *changes))


@pytest.fixture(scope="module")
def by_workers(tmp_path_factory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("workers") / "run", PICTURES).run_dir


@pytest.mark.parametrize("workers", [0, 1])
def test_colours_on_the_device_give_the_same_weights_and_pictures(by_workers, tmp_path, activate, workers):
    activate(hsv="device_native")
    result = tiny_run(tmp_path / "run", PICTURES, f"data.num_workers={workers}")
    plain, other = read_state(by_workers), read_state(result.run_dir)
    for part in ("state_dict", "optimizer_states", "epoch", "global_step"):
        assert_equal(plain[part], other[part], part)
    assert curve(result.run_dir) == curve(by_workers)
    assert result.plan["hsv"].outcome == {"calls": 4}
    assert json.loads((result.run_dir / "summary.json").read_text())["plan"]["hsv"]["outcome"] == {"calls": 4}
    drawn = sorted(path.relative_to(by_workers) for path in by_workers.rglob("train_batch_*"))
    assert len(drawn) == 3
    for path in drawn:
        np.testing.assert_array_equal(Image.open(result.run_dir / path), Image.open(by_workers / path))


def test_other_colours_give_other_weights(by_workers, tmp_path, activate):
    """The runs above would also be equal if nothing changed any colour."""
    activate(hsv="device_native")
    result = tiny_run(tmp_path / "run", "data.augment.hsv_v=0.0")
    plain, other = (read_state(run)["state_dict"] for run in (by_workers, result.run_dir))
    assert any(not torch.equal(value, other[name]) for name, value in plain.items())


def test_a_kernel_that_cannot_be_had_shows_in_the_plan(by_workers, tmp_path, activate):
    pytest.importorskip("triton")
    activate(hsv="device", hsv_fused=True)
    with pytest.warns(UserWarning, match=r"hsv\.fused: the fused colour kernel could not be compiled"):
        result = tiny_run(tmp_path / "run")
    assert_equal(read_state(by_workers)["state_dict"], read_state(result.run_dir)["state_dict"])
    assert result.plan["hsv.fused"].active is True
    assert set(result.plan["hsv.fused"].outcome) == {"failure"}
    assert result.plan["hsv"].outcome == {"calls": 4}


def test_off_cuda_the_workers_go_on_and_the_user_is_told(by_workers, tmp_path):
    with pytest.warns(UserWarning, match=r"hsv=device needs a CUDA device, this run computes on cpu") as caught:
        result = tiny_run(tmp_path / "run", "hsv=device")
    assert len(caught) == 1
    assert (result.plan["hsv"].active, result.plan["hsv"].outcome) == ("worker", {})
    assert_equal(read_state(by_workers)["state_dict"], read_state(result.run_dir)["state_dict"])
