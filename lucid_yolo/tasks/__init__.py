"""What is learned: one package a task, found by its name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lucid_yolo.config.tasks import TaskName
    from lucid_yolo.tasks.base import Task


def get_task(name: TaskName) -> Task:
    """Find a task: ``TASK`` of the package ``lucid_yolo.tasks.<name>``.

    Args:
        name: of the task; the configuration allows no other.
    """
    task: Task = import_module(f"{__name__}.{name.value}").TASK
    return task
