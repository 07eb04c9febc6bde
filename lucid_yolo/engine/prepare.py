"""Everything about a run that is decided before anything is built or written."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lucid_yolo.config.schema import RootConfig
from lucid_yolo.data.readers import read_splits
from lucid_yolo.data.statistics import target_rows
from lucid_yolo.data.workers import WorkerChoice
from lucid_yolo.engine import build
from lucid_yolo.perf.machine import describe_machine
from lucid_yolo.perf.plan import RunPlan, resolve
from lucid_yolo.perf.rules import data_facts
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
    """

    config: RootConfig
    plan: RunPlan
    task: Task
    splits: build.Splits
    device: torch.device
    workers: WorkerChoice
    rows: int


def prepare(root: RootConfig) -> Prepared:
    """Decide everything that can be decided before anything is built or written.

    Raises:
        ConfigError: the configuration is refused.
        DataError: the data cannot be used.
    """
    machine = describe_machine(root)
    resolve(root, machine, None)  # what is refused without the data is refused before reading it
    train_index, val_index = read_splits(root.data)
    plan = resolve(root, machine, data_facts(train_index, val_index, image_size=root.data.image_size))
    rows = target_rows(train_index, root.data)
    return Prepared(
        config=root,
        plan=plan,
        task=get_task(root.task.name),
        splits=build.Splits(train_index, val_index),
        device=torch.device("cuda", 0)
        if plan["accelerator"].active == "cuda"
        else torch.device(str(plan["accelerator"].active)),
        workers=build.choose_workers(root, train_index, machine, rows=rows),
        rows=rows,
    )
