"""The throw-away step beside the imports."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import lucid_yolo as ly
from lucid_yolo.config.compose import to_root
from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.schema import TASKS
from lucid_yolo.engine.warm_up import _step, warm_up
from lucid_yolo.perf.machine import describe_machine
from lucid_yolo.perf.plan import resolve
from tests.engine.tiny import tiny_overrides


def test_off_cuda_only_the_other_work_is_done() -> None:
    before, done = torch.get_rng_state(), []
    assert warm_up(to_root(ly.compose(tiny_overrides("trainer.accelerator=cpu"))), lambda: done.append(1)) is None
    assert done == [1]
    assert torch.equal(torch.get_rng_state(), before)


STEPS = """
import sys
import lucid_yolo.engine.warm_up
print("lightning", [m for m in sys.modules if m.split(".")[0] == "lightning"], flush=True)
import os, torch
import lucid_yolo as ly
from lucid_yolo.config.compose import to_root
from lucid_yolo.config.schema import TASKS
from lucid_yolo.engine.warm_up import _step
from lucid_yolo.perf.machine import describe_machine
from lucid_yolo.perf.plan import resolve
from lucid_yolo.tasks import get_task
from tests.engine.tiny import tiny_overrides

torch.cuda.synchronize = lambda *_: None
for task in TASKS:
    if os.fork() == 0:  # what one task imports must not be there already for the next
        root = to_root(ly.compose(tiny_overrides(f"task={task}")))
        get_task(root.task.name)
        plan = resolve(root, describe_machine(root), None)
        before = set(sys.modules)
        _step(root, plan, torch.device("cpu"))
        print(task, sorted(set(sys.modules) - before), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork processes")
def test_it_needs_no_lightning_and_the_step_imports_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{name} []" for name in ("lightning", *TASKS)]


@pytest.mark.parametrize("task", TASKS)
def test_the_step_draws_no_random_number(monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    root = to_root(ly.compose(tiny_overrides(f"task={task}")))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    before = torch.get_rng_state()
    _step(root, resolve(root, describe_machine(root), None), torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.gpu
def test_on_cuda_a_step_is_made_and_nothing_stays() -> None:
    root = to_root(ly.compose(tiny_overrides("trainer.accelerator=cuda", "precision=bf16-mixed")))
    state, interval, done = torch.cuda.get_rng_state(), sys.getswitchinterval(), []
    assert warm_up(root, lambda: done.append(1)) is None
    assert done == [1]
    assert torch.cuda.max_memory_allocated() > 2**20
    assert torch.cuda.memory_allocated() < 2**28  # workspaces of libraries
    assert torch.equal(torch.cuda.get_rng_state(), state)
    assert (sys.getswitchinterval(), torch.backends.cudnn.deterministic) == (interval, False)


@pytest.mark.gpu
def test_what_the_run_will_refuse_stops_the_step_alone() -> None:
    root = to_root(ly.compose(tiny_overrides("trainer.accelerator=cuda", "trainer.devices=2")))
    assert isinstance(warm_up(root, lambda: None), ConfigError)
