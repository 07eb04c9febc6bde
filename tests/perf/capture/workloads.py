"""Networks with their losses and the options that record their parts, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lucid_yolo.config.schema import RootConfig
from lucid_yolo.data.batch import Targets
from lucid_yolo.data.labels.base import LabelSpec, spec_without_data
from lucid_yolo.nn.scale import Scale
from lucid_yolo.tasks import get_task
from tests.nn.networks import GROUPS, leaves, make_network
from tests.nn.scales import SCALES, TINY

CLASSES = 3

REGIONS_OF: dict[str, Mapping[str, str]] = {
    "segment": {
        "trunk": "network",
        "boxes": "heads",
        "coefficients": "heads",
        "fusion": "heads",
        "prototypes": "heads",
        "semantic": "heads",
    },
    "keypoints": {"trunk": "network", "boxes": "network", "points": "network"},
}


class Losses(NamedTuple):
    """What a loss returns."""

    total: Tensor
    parts: Tensor


class Squares(nn.Module):
    """The mean square of every output of a network, with a weight of its own for each."""

    def forward(self, predictions: Any, targets: Targets) -> Losses:
        objects = 1 + targets.valid.sum() + targets.boxes.sum() / 1000
        parts = [(1 + i) * objects * output.float().square().mean() for i, output in enumerate(leaves(predictions))]
        return Losses(torch.stack(parts).sum(), torch.stack(parts).detach())


@dataclass
class Workload:
    """What a rig trains.

    Attributes:
        network: untrained.
        loss: called with what the network returns and the targets.
        regions: of the task, see ``Task.regions``.
        spec: what its labels ask of the network.
    """

    network: nn.Module
    loss: nn.Module
    regions: Mapping[str, str] = field(default_factory=dict)
    spec: LabelSpec = field(default_factory=lambda: LabelSpec(CLASSES))


def of_task(config: RootConfig, size: int) -> Workload:
    """What the configured task trains."""
    task = get_task(config.task.name)
    spec = spec_without_data(task.labels, CLASSES)
    return Workload(task.build_model(config.model, spec), task.build_loss(config.task, spec, size), task.regions, spec)


def of_squares(task: str, scale: Scale = TINY, **settings: bool) -> Callable[[RootConfig, int], Workload]:
    """A network of a task, whatever it learns."""
    return lambda config, size: Workload(
        make_network(task, scale, CLASSES, **settings), Squares(), REGIONS_OF.get(task, {})
    )


WORKLOADS: dict[str, Callable[[RootConfig, int], Workload]] = {
    "detect": of_task,
    **{task: of_squares(task) for task in GROUPS},
    **{f"{task} detached": of_squares(task, detach_one_to_one=True) for task in REGIONS_OF},
    **{f"{task} n": of_squares(task, SCALES["n"]) for task in GROUPS},
}
