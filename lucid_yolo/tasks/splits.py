"""The splits of a run, with what its task's settings say about their labels."""

from __future__ import annotations

from lucid_yolo.config.schema import RootConfig
from lucid_yolo.config.tasks import KeypointTaskConfig
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.keypoint_settings import configured, with_keypoints
from lucid_yolo.data.readers import read_splits
from lucid_yolo.tasks import get_task


def read_configured(root: RootConfig) -> tuple[SplitIndex, SplitIndex]:
    """Read both splits; what the task's settings say about their labels wins over what the data says.

    Raises:
        ConfigError: settings of the reader, or such that do not fit the labels.
        DataError: the data cannot be read.
    """
    train, val = read_splits(root.data, get_task(root.task.name).labels)
    if isinstance(root.task, KeypointTaskConfig) and train.keypoints is not None:
        spec = configured(train.keypoints, root.task.keypoints, root.data.augment)
        return with_keypoints(train, spec), with_keypoints(val, spec)
    return train, val
