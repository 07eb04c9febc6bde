"""Detection: boxes and classes."""

from lucid_yolo.tasks.detect.task import TASK, DetectTask

__all__ = ["TASK", "DetectTask"]
