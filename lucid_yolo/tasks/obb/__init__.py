"""Oriented boxes: boxes at any angle, and classes."""

from lucid_yolo.tasks.obb.task import TASK, ObbTask

__all__ = ["TASK", "ObbTask"]
