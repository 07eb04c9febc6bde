"""The waiting time of a first step on CUDA, spent while Python is still importing what a training needs.

The first step loads kernels and builds a plan for every convolution, forward and backward: seconds on the host, most of
them outside of Python. A throw-away step of the same shapes does that meanwhile, in the thread that will train: plans
belong to a thread. Imports no Lightning.

The step must import nothing: where the other thread is inside the same module, it would wait for it. So the optimizer
is left out (``torch.optim`` brings Dynamo) and the network is not built on the meta device (which brings sympy).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from threading import Thread

import torch

from lucid_yolo.config.schema import RootConfig
from lucid_yolo.data.empty import empty_targets
from lucid_yolo.data.labels.base import spec_without_data
from lucid_yolo.data.statistics import MIN_ROWS
from lucid_yolo.nn.cast import CastOnce
from lucid_yolo.perf.machine import describe_machine, find_accelerators
from lucid_yolo.perf.plan import RunPlan, resolve
from lucid_yolo.tasks import get_task

SWITCH_SECONDS = 5e-4
"""Python's threads wait that long for each other; at its usual 5 ms a step of a thousand calls would stand still."""

CLASSES = 80  # the data is not read yet; only the last convolutions depend on it
AUTOCAST = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


def warm_up(config: RootConfig, beside: Callable[[], object]) -> Exception | None:
    """Make a throw-away step while something else runs in a thread; off CUDA, or unasked, only the latter happens.

    Args:
        config: the run.
        beside: Python work that may be left out, such as an import; it must not start processes.

    Returns:
        what stopped the step; the run itself will meet it and say so.
    """
    wanted = config.trainer.early_step and config.trainer.accelerator in ("auto", "cuda")
    if not wanted or "cuda" not in find_accelerators():
        beside()
        return None
    get_task(config.task.name)  # imported before the thread starts: two threads must not import the same modules
    thread, interval = Thread(target=beside, name="beside the warm-up"), sys.getswitchinterval()
    try:
        plan = resolve(config, describe_machine(config), None)
        sys.setswitchinterval(SWITCH_SECONDS)
        thread.start()
        if plan["accelerator"].active == "cuda":
            _step(config, plan, torch.device("cuda", 0))
    except Exception as problem:  # nothing here may stop a run
        return problem
    finally:
        if thread.is_alive():
            thread.join()
        sys.setswitchinterval(interval)
        torch.cuda.empty_cache()  # of a step that failed too; nothing where CUDA did not start
    return None


def _step(config: RootConfig, plan: RunPlan, device: torch.device) -> None:
    deterministic = plan["deterministic"].active != "off"
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts
    task, batch, size = get_task(config.task.name), config.data.batch_size, config.data.image_size
    spec = spec_without_data(task.labels, CLASSES)
    with torch.random.fork_rng(devices=[]):  # random numbers belong to the run
        model, loss = task.build_model(config.model, spec), task.build_loss(config.task, spec, size)
    model = model.to(device).to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    loss = loss.to(device)
    images = torch.zeros(batch, 3, size, size, device=device).contiguous(memory_format=torch.channels_last)
    targets = empty_targets(task.labels, spec, rows=MIN_ROWS, image_size=size).to(device)
    dtype = AUTOCAST.get(str(plan["precision"].active))
    # Plans are kept by this flag too.
    torch.backends.cudnn.deterministic = deterministic
    try:
        with torch.autocast("cuda", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            losses = loss(CastOnce(model)(images), targets)
        losses.total.backward()
        torch.cuda.synchronize(device)
    finally:
        torch.backends.cudnn.deterministic = False
