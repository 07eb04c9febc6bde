"""Everything about a run that is decided before anything is built or written."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lucid_yolo.config.schema import RootConfig
from lucid_yolo.data.workers import WorkerChoice
from lucid_yolo.engine import build
from lucid_yolo.engine.initial import InitialWeights
from lucid_yolo.engine.resolve import read_and_resolve
from lucid_yolo.perf.plan import RunPlan
from lucid_yolo.tasks import get_task
from lucid_yolo.tasks.base import Task


@dataclass(frozen=True)
class Prepared:
    """A run that was decided and not yet built.

    Attributes:
        config: the run.
        plan: what is active.
        task: what is learned.
        splits: the data.
        device: where it trains.
        workers: loader processes, and what to say about them.
        rows: target rows of a usual batch.
        initial: weights that the run starts from; None: they are drawn, or those of the resumed run.
    """

    config: RootConfig
    plan: RunPlan
    task: Task
    splits: build.Splits
    device: torch.device
    workers: WorkerChoice
    rows: int
    initial: InitialWeights | None


def prepare(root: RootConfig) -> Prepared:
    """Decide everything that can be decided before anything is built or written.

    Raises:
        ConfigError: the configuration is refused.
        DataError: the data cannot be used.
        RunError: the checkpoint of ``model.init_from`` cannot be used.
    """
    resolved = read_and_resolve(root)
    plan = resolved.plan
    return Prepared(
        config=root,
        plan=plan,
        task=get_task(root.task.name),
        splits=build.Splits(resolved.train, resolved.val),
        device=torch.device("cuda", 0)
        if plan["accelerator"].active == "cuda"
        else torch.device(str(plan["accelerator"].active)),
        workers=resolved.workers,
        rows=resolved.rows,
        initial=resolved.initial,
    )
