"""Whether two splits belong together."""

from __future__ import annotations

import os

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.readers.problems import counted, some


def class_mismatch(train: SplitIndex, val: SplitIndex) -> tuple[str, ...]:
    """One sentence if the splits have different classes, else none."""
    of_train, of_val = (set(zip(split.category_ids, split.class_names, strict=True)) for split in (train, val))
    if of_train == of_val:
        return ()
    only_train, only_val = (
        some(f"{number} {name!r}" for number, name in sorted(only)) or "none"
        for only in (of_train - of_val, of_val - of_train)
    )
    return (
        f"the splits have different classes: only in {train.source}: {only_train}; only in {val.source}: {only_val}; "
        f"both need the same list of ids and names",
    )


def keypoint_mismatch(train: SplitIndex, val: SplitIndex) -> tuple[str, ...]:
    """One sentence if the splits have different key points, else none."""
    if train.keypoints is None or val.keypoints is None or train.keypoints.names == val.keypoints.names:
        return ()
    of_train, of_val = (some(spec.names, shown=20) for spec in (train.keypoints, val.keypoints))
    return (
        f"the splits have different key points: {of_train} in {train.source}, {of_val} in {val.source}; both need the "
        "same names in the same order",
    )


def shared_images(train: SplitIndex, val: SplitIndex) -> tuple[str, ...]:
    """One sentence if an image is in both splits, else none."""
    shared = set(map(os.path.realpath, train.paths)) & set(map(os.path.realpath, val.paths))
    if not shared:
        return ()
    names = some(sorted(map(os.path.basename, shared)))
    return (f"{counted(len(shared), 'image')} also in the training split, so the score says too much: {names}",)
