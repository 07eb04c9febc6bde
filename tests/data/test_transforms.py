"""Albumentations: late import, independent draws, boxes that travel along, refusals."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest

from lucid_yolo.config.errors import ConfigError, DataError
from lucid_yolo.data.objects import Objects
from lucid_yolo.data.transforms import Transforms

FLIPS = [{"_target_": "albumentations.HorizontalFlip", "p": 0.5}, {"_target_": "albumentations.VerticalFlip", "p": 0.5}]
IMAGE = np.arange(32 * 32 * 3, dtype=np.uint32).reshape(32, 32, 3).astype(np.uint8)
BOXES = np.array([[2, 4, 10, 8], [20, 20, 32, 30]], np.float32)
CLASSES = np.array([7, 3])
OBJECTS = Objects(BOXES, CLASSES)


def test_two_flips_at_one_half_give_four_outcomes():
    transforms = Transforms(FLIPS)
    outcomes = [transforms(IMAGE, OBJECTS, seed=seed)[1].boxes[0].tolist() for seed in range(80)]
    found = {tuple(np.rint(box).astype(int)) for box in outcomes}
    assert found == {(2, 4, 10, 8), (22, 4, 30, 8), (2, 24, 10, 28), (22, 24, 30, 28)}
    shares = [np.mean([tuple(np.rint(box).astype(int)) == one for box in outcomes]) for one in found]
    assert min(shares) > 0.1


def test_a_seed_gives_the_same_sample_in_any_order_and_process():
    transforms = Transforms(FLIPS)
    first = [transforms(IMAGE, OBJECTS, seed=seed)[0] for seed in range(6)]
    again = pickle.loads(pickle.dumps(transforms))
    for seed in reversed(range(6)):
        np.testing.assert_array_equal(again(IMAGE, OBJECTS, seed=seed)[0], first[seed])


def test_boxes_keep_their_classes_and_leave_with_the_picture():
    shift = {"_target_": "albumentations.Affine", "translate_px": {"x": -18, "y": 0}, "p": 1.0}
    _, left = Transforms([shift])(IMAGE, OBJECTS, seed=0)
    np.testing.assert_allclose(left.boxes, [[2, 20, 14, 30]], atol=1e-4)
    assert left.classes.tolist() == [3]


def test_pictures_without_objects_pass():
    none = Objects(np.zeros((0, 4), np.float32), np.zeros(0, np.int64))
    image, found = Transforms(FLIPS)(IMAGE, none, seed=0)
    assert image.shape == IMAGE.shape
    assert found.boxes.shape == (0, 4)
    assert found.classes.shape == (0,)
    assert found.classes.dtype == np.int64


def test_pixel_transforms_leave_boxes_alone():
    nested = {
        "_target_": "albumentations.OneOf",
        "transforms": [{"_target_": "albumentations.Blur", "p": 1.0}],
        "p": 1.0,
    }
    for listed in ([{"_target_": "albumentations.InvertImg", "p": 1.0}], [nested]):
        image, found = Transforms(listed)(IMAGE, OBJECTS, seed=1)
        assert (image != IMAGE).any()
        np.testing.assert_allclose(found.boxes, BOXES, atol=1e-4)
        assert found.classes.tolist() == CLASSES.tolist()


def test_an_empty_list_changes_nothing_and_imports_nothing():
    code = (
        "import sys; import lucid_yolo.data.dataset; from lucid_yolo.data.transforms import Transforms;"
        "Transforms([]); sys.exit('albumentations' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    image, found = Transforms([])(IMAGE, OBJECTS, seed=0)
    assert image is IMAGE
    assert found is OBJECTS


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"_target_": "albumentations.Blurr"}, r"transforms\[0\] names albumentations\.Blurr"),
        ({"_target_": "os.system", "command": "true"}, r"an entry looks like"),
        ("Blur", r"an entry looks like"),
        ({"_target_": "albumentations.Blur", "blur_limitt": 3}, r"Blur refuses its settings: .*blur_limitt"),
        ({"_target_": "albumentations.Blur", "blur_limit": "wide"}, r"Blur refuses its settings"),
        (
            {"_target_": "albumentations.OneOf", "transforms": [{"_target_": "albumentations.X"}]},
            r"\[0\]\.transforms\[0\]",
        ),
        ({"_target_": "albumentations.random_utils"}, r"no such transform"),
    ],
)
def test_refusals(entry, message):
    with pytest.raises(ConfigError, match=message):
        Transforms([entry])


def test_a_transform_that_changes_the_size_is_refused():
    resize = {"_target_": "albumentations.Resize", "height": 16, "width": 16, "p": 1.0}
    with pytest.raises(DataError, match=r"turns a \(32, 32, 3\) uint8 picture into \(16, 16, 3\)"):
        Transforms([resize])(IMAGE, OBJECTS, seed=0)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"_target_": "albumentations.RandomCrop", "height": 99, "width": 99, "p": 1.0},
            "fails on a sample: Crop size",
        ),
        ({"_target_": "albumentations.FDA", "p": 1.0}, "fails on a sample: FDA requires .*change or remove"),
    ],
)
def test_a_transform_that_fails_is_our_error(entry, message):
    with pytest.raises(DataError, match=r"data\.augment\.transforms " + message):
        Transforms([entry])(IMAGE, OBJECTS, seed=0)


def test_a_wrong_setting_is_one_line_without_a_link():
    with pytest.raises(
        ConfigError, match=r"\[0\]: albumentations.Blur refuses its settings: .* p Input should be less"
    ) as caught:
        Transforms([{"_target_": "albumentations.Blur", "p": 7}])
    assert "http" not in str(caught.value)
    assert "\n" not in str(caught.value)
