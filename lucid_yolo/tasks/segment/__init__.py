"""Instance segmentation: boxes, classes and masks."""

from lucid_yolo.tasks.segment.task import TASK, SegmentTask

__all__ = ["TASK", "SegmentTask"]
