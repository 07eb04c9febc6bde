"""Read the machine and the data, and decide what a run will do; shared by the verbs ``plan`` and ``train``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lucid_yolo.config.schema import RootConfig
from lucid_yolo.data.cache import cache_exists
from lucid_yolo.data.empty import empty_targets
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.statistics import target_rows
from lucid_yolo.data.transforms import Transforms
from lucid_yolo.data.workers import WorkerChoice, batch_bytes, choose_num_workers
from lucid_yolo.engine.initial import InitialWeights, match, read_donor
from lucid_yolo.perf.machine import Machine, describe_machine
from lucid_yolo.perf.plan import RunPlan, resolve
from lucid_yolo.perf.rules import data_facts
from lucid_yolo.tasks import get_task
from lucid_yolo.tasks.splits import read_configured


@dataclass(frozen=True)
class Resolved:
    """A plan and the data that it was made for.

    Attributes:
        plan: what is active.
        train: training split.
        val: validation split.
        workers: loader processes, and what to say about them.
        rows: target rows of a usual batch.
        initial: weights that the run starts from; None: they are drawn, or those of the resumed run.
    """

    plan: RunPlan
    train: SplitIndex
    val: SplitIndex
    workers: WorkerChoice
    rows: int
    initial: InitialWeights | None


def read_and_resolve(root: RootConfig) -> Resolved:
    """Resolve a configuration with everything that can be known before something is built.

    Raises:
        ConfigError: the configuration is refused.
        DataError: the data cannot be read.
        RunError: the checkpoint of ``model.init_from`` cannot be used.
    """
    machine = describe_machine(root)
    Transforms(root.data.augment.transforms)  # what cannot be built is refused before a directory is claimed
    resolve(root, machine, None)  # what is refused without the data is refused before reading it
    donor = read_donor(root)
    train, val = read_configured(root)
    rows = target_rows(train, root.data)
    workers = choose_workers(root, train, machine, rows=rows)
    facts = data_facts(
        train,
        val,
        image_size=root.data.image_size,
        cache_exists=cache_exists(train, root.data, root.cache),
        num_workers=workers.count,
    )
    initial = match(donor, root, train.class_names, train.spec) if donor is not None else None
    plan = resolve(root, machine, facts)
    if initial is not None:
        plan = replace(plan, notes=(*plan.notes, initial.sentence()))
    return Resolved(plan, train, val, workers, rows, initial)


def choose_workers(config: RootConfig, index: SplitIndex, machine: Machine, *, rows: int) -> WorkerChoice:
    """Choose how many processes prepare training batches.

    Args:
        config: the run.
        index: training split.
        machine: its cores and shared memory.
        rows: target rows of a batch.
    """
    data = config.data
    targets = empty_targets(get_task(config.task.name).labels, index.spec, rows=rows, image_size=data.image_size)
    return choose_num_workers(
        data.num_workers,
        cores=machine.cores,
        free_shm=machine.shm_free,
        batch_bytes=batch_bytes(batch_size=data.batch_size, image_size=data.image_size, targets=targets),
        batches=-(-len(index) // data.batch_size),
    )
