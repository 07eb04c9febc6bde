"""Key points: boxes, classes and named points."""

from lucid_yolo.tasks.keypoints.task import TASK, KeypointTask

__all__ = ["TASK", "KeypointTask"]
