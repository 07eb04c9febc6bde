"""What names say about mirrored pictures, and settings that meet the data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycocotools.cocoeval import Params

from lucid_yolo.config.errors import ConfigError, DataError
from lucid_yolo.config.schema import AugmentConfig
from lucid_yolo.config.tasks import KeypointsConfig
from lucid_yolo.data.keypoint_settings import configured, with_keypoints
from lucid_yolo.data.labels.base import KeypointSpec
from lucid_yolo.data.labels.keypoint_spec import (
    COCO_NAMES,
    COCO_SIGMAS,
    flip_problem,
    known_sigmas,
    mirrored_positions,
)
from lucid_yolo.data.labels.keypoints import KeypointLabels
from tests.data.splits import make_index

SPEC = KeypointSpec(("a", "b", "c"), ((0, 1),), None, None)
STILL = AugmentConfig(flip_lr=0.0, flip_ud=0.0)


def test_coco() -> None:
    flip = mirrored_positions(COCO_NAMES)
    assert flip == (0, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14, 13, 16, 15)
    assert known_sigmas(COCO_NAMES) == COCO_SIGMAS == pytest.approx(Params("keypoints").kpt_oks_sigmas.tolist())
    assert known_sigmas(COCO_NAMES[::-1]) is None
    assert float(np.median(COCO_SIGMAS)) == 0.072  # the spread of points of which nothing is known


@pytest.mark.parametrize(
    ("names", "flip"),
    [
        (["left_eye", "right_eye"], (1, 0)),
        (["eye-right", "nose", "eye-left"], (2, 1, 0)),
        (["l_hip", "R_hip", "r_hip"], (2, 1, 0)),
        (["hip.l", "hip.r", "L1", "R1"], (1, 0, 3, 2)),
        (["LeftEye", "RightEye", "earLeft", "earRight", "lefthand", "righthand"], (1, 0, 3, 2, 5, 4)),
        (["LEFT", "RIGHT", "left"], (1, 0, 2)),
        (["center", "head", "tail"], (0, 1, 2)),
        (["left_eye", "nose", "bright"], (0, 1, 2)),  # without a partner
        (["lip", "rip", "tail", "wall"], (0, 1, 2, 3)),  # letters inside words say nothing
        (["p", "p"], (0, 1)),
        (["left", "left", "right"], None),
    ],
)
def test_partners_by_name(names: list[str], flip: tuple[int, ...] | None) -> None:
    assert mirrored_positions(names) == flip


@given(st.lists(st.text("lr_leftrightLR -.", min_size=1, max_size=9), unique=True, max_size=12))
def test_any_different_names_give_a_permutation_that_undoes_itself(names: list[str]) -> None:
    flip = mirrored_positions(names)
    assert flip is not None
    assert sorted(flip) == list(range(len(names)))
    assert [flip[flip[i]] for i in range(len(names))] == list(range(len(names)))


@pytest.mark.parametrize(
    ("flip", "problem"),
    [
        ([0, 1], "2 positions for 3 points"),
        ([1, 2, 0], "point 0 goes to 1, but 1 to 2"),
        ([0, 1, 3], "point 2 goes to 3; allowed: 0 to 2"),
        ([0, -1, 2], "point 1 goes to -1"),
    ],
)
def test_what_is_no_permutation_of_a_mirrored_picture(flip: list[int], problem: str) -> None:
    assert problem in str(flip_problem(flip, 3))
    with pytest.raises(ConfigError, match=r"task\.keypoints\.flip=.*the data has 3 points"):
        configured(SPEC, KeypointsConfig(flip=flip), STILL)


def test_what_is_set_wins_and_every_point_has_a_spread() -> None:
    settings = KeypointsConfig(flip=[1, 0, 2], sigmas=[0.1, 0.2, 0.3], skeleton=[[2, 0]])
    found = configured(SPEC, settings, AugmentConfig(flip_lr=0.5))
    assert found == KeypointSpec(("a", "b", "c"), ((2, 0),), (1, 0, 2), (0.1, 0.2, 0.3))
    assert configured(found, KeypointsConfig(), AugmentConfig()) == found
    assert configured(SPEC, KeypointsConfig(), STILL) == replace(SPEC, sigmas=(0.072,) * 3)
    assert configured(SPEC, KeypointsConfig(skeleton=[]), STILL).skeleton == ()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"sigmas": [0.1]}, r"sigmas has 1 numbers; the data has 3 points"),
        ({"sigmas": [0.1, 0.0, 0.1]}, r"sigmas=.*greater than 0"),
        ({"sigmas": [0.1, float("nan"), 0.1]}, r"sigmas=.*finite"),
        ({"skeleton": [[0, 3]]}, r"skeleton=.*joins 0 and 3; allowed: 0 to 2"),
        ({"skeleton": [[0, 1, 2]]}, r"skeleton=.*pairs"),
        ({"skeleton": [0, 1]}, r"skeleton=.*pairs"),
        ({"skeleton": [["a", "b"]]}, r"skeleton=.*pairs"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, list[object]], problem: str) -> None:
    with pytest.raises(ConfigError, match=rf"task\.keypoints\.{problem}"):
        configured(SPEC, KeypointsConfig(**settings), STILL)  # type: ignore[arg-type]


def test_all_problems_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        configured(SPEC, KeypointsConfig(flip=[0], sigmas=[1.0], skeleton=[[7, 7]]), STILL)
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("flips", [{"flip_lr": 0.5}, {"flip_lr": 0.0, "flip_ud": 0.25}, {"flip_ud": 0.1}])
def test_flips_are_refused_where_it_is_unknown_what_changes_places(flips: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"task\.keypoints\.flip=\[\.\.\.\].*3 points \(a, b, c\)") as caught:
        configured(SPEC, KeypointsConfig(), AugmentConfig(**flips))  # type: ignore[arg-type]
    for name in ("flip_lr", "flip_ud"):
        on = getattr(AugmentConfig(**flips), name) > 0  # type: ignore[arg-type]
        assert (f"data.augment.{name}=0" in str(caught.value).partition(", or ")[2]) == on
    assert configured(SPEC, KeypointsConfig(flip=[0, 1, 2]), AugmentConfig(**flips)).flip == (0, 1, 2)  # type: ignore[arg-type]


def test_labels_move_by_the_permutation_of_the_split() -> None:
    index = make_index([(8, 8)], [[[0, 0, 8, 8]]])
    index = replace(index, labels=KeypointLabels(np.array([[[1, 1, 0], [2, 2, 1]]], np.float32)))
    spec = KeypointSpec(("left", "right"), (), (1, 0), None)
    found = with_keypoints(index, spec)
    assert found.keypoints is spec
    assert found.spec.keypoints is spec
    assert isinstance(found.labels, KeypointLabels)
    assert found.labels.flip == (1, 0)
    none = replace(index, labels=KeypointLabels(np.zeros((1, 2, 3), np.float32)))
    with pytest.raises(
        DataError, match=r"labels\.json: no object of the train split \(of 1\) has a labelled key point"
    ):
        with_keypoints(none, spec)
