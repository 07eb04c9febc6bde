"""Where the key points of a data set meet what the configuration says about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from lucid_yolo.config.errors import ConfigError, DataError
from lucid_yolo.config.schema import AugmentConfig
from lucid_yolo.config.tasks import KeypointsConfig
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import KeypointSpec
from lucid_yolo.data.labels.keypoint_spec import flip_problem, skeleton_problem
from lucid_yolo.data.labels.keypoints import KeypointLabels
from lucid_yolo.ops.keypoints import UNIFORM_SIGMA

KEY = "task.keypoints"


def with_keypoints(index: SplitIndex, spec: KeypointSpec) -> SplitIndex:
    """Say what the key points of a split are, for all who read it: its labels move by that permutation.

    Raises:
        DataError: no object has a key point.
    """
    labels = index.labels
    assert isinstance(labels, KeypointLabels)
    if not (labels.values[..., 2] > 0).any():
        raise DataError(
            f"{index.source}: no object of the {index.name} split (of {len(labels)}) has a labelled key point, which "
            "task=keypoints needs; task=detect reads the boxes"
        )
    return replace(index, keypoints=spec, labels=replace(labels, flip=spec.flip))


def configured(spec: KeypointSpec, settings: KeypointsConfig, augment: AugmentConfig) -> KeypointSpec:
    """Key points as a run uses them: what is set wins over what the data says, and every point has a spread.

    Args:
        spec: what the data says.
        settings: what is set.
        augment: whether pictures are mirrored. One flip of either kind mirrors; both together are a half turn.

    Raises:
        ConfigError: settings that do not fit the points, or pictures that would be mirrored although it is unknown
            which points change places.
    """
    if problems := tuple(_problems(len(spec), settings)):
        raise ConfigError(problems)
    found = replace(
        spec,
        flip=spec.flip if settings.flip is None else tuple(settings.flip),
        skeleton=spec.skeleton if settings.skeleton is None else tuple((a, b) for a, b in settings.skeleton),
        sigmas=tuple(settings.sigmas or spec.sigmas or np.full(len(spec), UNIFORM_SIGMA).tolist()),
    )
    flips = [name for name in ("flip_lr", "flip_ud") if getattr(augment, name) > 0]
    if found.flip is None and flips:
        shown = " and ".join(f"data.augment.{name}={getattr(augment, name):g}" for name in flips)
        off = " ".join(f"data.augment.{name}=0" for name in flips)
        raise ConfigError(
            [
                f"{shown} mirrors pictures, and the data does not say which key points change places then: set "
                f"{KEY}.flip=[...] with a position for each of the {len(spec)} points ({', '.join(spec.names)}), or "
                f"{off}."
            ]
        )
    return found


def _problems(count: int, settings: KeypointsConfig) -> Iterator[str]:
    points = f"the data has {count} points"
    if settings.flip is not None and (problem := flip_problem(settings.flip, count)):
        yield f"{KEY}.flip={settings.flip}: {problem}; {points}, and each needs the position of its partner or its own."
    if settings.sigmas is not None and len(settings.sigmas) != count:
        yield f"{KEY}.sigmas has {len(settings.sigmas)} numbers; {points}, and each needs one."
    if settings.sigmas is not None and not all(0 < sigma < np.inf for sigma in settings.sigmas):
        yield f"{KEY}.sigmas={settings.sigmas}: each must be greater than 0 and finite."
    if settings.skeleton is not None:
        pairs = settings.skeleton
        if not all(isinstance(p, list) and len(p) == 2 and all(type(end) is int for end in p) for p in pairs):
            yield f"{KEY}.skeleton={pairs}: pairs of positions, counted from 0, are needed, such as [[0,1],[1,2]]."
        elif problem := skeleton_problem([(a, b) for a, b in pairs], count):
            yield f"{KEY}.skeleton={pairs}: {problem}; {points}, counted from 0."
