"""Read the machine and the data, and decide what a run will do; shared by the verbs ``plan`` and ``train``."""

from __future__ import annotations

from dataclasses import dataclass

from lucid_yolo.config.schema import RootConfig
from lucid_yolo.data.cache import cache_exists
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.readers import read_splits
from lucid_yolo.data.transforms import Transforms
from lucid_yolo.perf.machine import describe_machine
from lucid_yolo.perf.plan import RunPlan, resolve
from lucid_yolo.perf.rules import data_facts


@dataclass(frozen=True)
class Resolved:
    """A plan and the data that it was made for.

    Attributes:
        plan: what is active.
        train: training split.
        val: validation split.
    """

    plan: RunPlan
    train: SplitIndex
    val: SplitIndex


def read_and_resolve(root: RootConfig) -> Resolved:
    """Resolve a configuration with everything that can be known before something is built.

    Raises:
        ConfigError: the configuration is refused.
        DataError: the data cannot be read.
    """
    machine = describe_machine(root)
    Transforms(root.data.augment.transforms)  # what cannot be built is refused before a directory is claimed
    resolve(root, machine, None)  # what is refused without the data is refused before reading it
    train, val = read_splits(root.data)
    facts = data_facts(
        train, val, image_size=root.data.image_size, cache_exists=cache_exists(train, root.data, root.cache)
    )
    return Resolved(resolve(root, machine, facts), train, val)
