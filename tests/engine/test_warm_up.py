"""The throw-away step beside the imports."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import lucid_yolo as ly
from lucid_yolo.config.compose import to_root
from lucid_yolo.config.errors import ConfigError
from lucid_yolo.engine.warm_up import WarmUp
from tests.engine.tiny import tiny_overrides


def test_it_draws_no_random_number_and_leaves_settings_alone() -> None:
    before, settings = torch.get_rng_state(), torch.backends.cudnn.deterministic
    warm_up = WarmUp(to_root(ly.compose(tiny_overrides("trainer.accelerator=auto"))))
    warm_up.wait()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.backends.cudnn.deterministic == settings


def test_it_needs_no_lightning() -> None:
    code = "import sys, lucid_yolo.engine.warm_up; print([m for m in sys.modules if m.split('.')[0] == 'lightning'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.gpu
def test_it_leaves_the_device_empty_and_a_refused_run_alone() -> None:
    overrides = tiny_overrides("trainer.accelerator=cuda", "precision=bf16-mixed")
    state = torch.cuda.get_rng_state()
    warm_up = WarmUp(to_root(ly.compose(overrides)))
    warm_up.wait()
    assert warm_up.problem is None
    assert torch.cuda.max_memory_allocated() > 2**20
    assert torch.cuda.memory_allocated() < 2**26  # workspaces of libraries
    assert torch.equal(torch.cuda.get_rng_state(), state)
    refused = WarmUp(to_root(ly.compose([*overrides, "trainer.devices=2"])))
    refused.wait()
    assert isinstance(refused.problem, ConfigError)
