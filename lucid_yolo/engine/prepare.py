"""Everything about a run that is decided before anything is built or written."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from lucid_yolo.config.schema import RootConfig
from lucid_yolo.data.readers import with_lasting_places
from lucid_yolo.engine import build
from lucid_yolo.engine.resolve import Resolved, read_and_resolve
from lucid_yolo.tasks import get_task
from lucid_yolo.tasks.base import Task


@dataclass(frozen=True, kw_only=True)
class Prepared(Resolved):
    """A run that was decided and not yet built.

    Attributes:
        config: the run.
        task: what is learned.
        device: where it trains.
    """

    config: RootConfig
    task: Task
    device: torch.device

    @property
    def splits(self) -> build.Splits:
        """The data."""
        return build.Splits(self.train, self.val)


def prepare(root: RootConfig) -> Prepared:
    """Decide everything that can be decided before anything is built or written.

    Raises:
        ConfigError: the configuration is refused.
        DataError: the data cannot be used.
        RunError: the checkpoint of ``model.init_from`` cannot be used.
    """
    resolved = read_and_resolve(root)
    accelerator = str(resolved.plan["accelerator"].active)
    return Prepared(
        **vars(resolved),
        config=replace(root, data=with_lasting_places(root.data)),
        task=get_task(root.task.name),
        device=torch.device("cuda", 0) if accelerator == "cuda" else torch.device(accelerator),
    )
