"""Samples: labels that move with the pixels, crowds, mixing, sharing of decodes, unusable files."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from lucid_yolo.config.errors import DataError
from lucid_yolo.config.schema import BadImages
from lucid_yolo.data.augment import Placement, SamplePlan
from lucid_yolo.data.colour import ColourHere, ColourLater
from lucid_yolo.data.dataset import TrainDataset, ValDataset
from lucid_yolo.data.sample import Renderer, learnable, place_objects, seen_tiles
from lucid_yolo.data.source import PictureSource
from lucid_yolo.data.transforms import Transforms
from lucid_yolo.ops.colour import ColourTransform
from tests.data.splits import PLAIN, make_config, make_index, write_split


class Rectangles:
    """An image source that draws the boxes of an index in white on black."""

    def __init__(self, index):
        self._index = index
        self.reads: Counter[int] = Counter()

    def __call__(self, image):
        self.reads[image] += 1
        width, height = self._index.sizes[image]
        picture = np.zeros((height, width, 3), np.uint8)
        for x1, y1, x2, y2 in self._index.boxes[self._index.rows(image)].astype(int):
            picture[y1:y2, x1:x2] = 255
        return picture


def random_index(count: int, seed: int = 0):
    generator = np.random.default_rng(seed)
    sizes = [tuple(int(v) for v in generator.integers(60, 200, 2)) for _ in range(count)]
    boxes = []
    for width, height in sizes:
        x, y = int(generator.integers(0, width - 30)), int(generator.integers(0, height - 30))
        boxes.append([[x, y, x + int(generator.integers(15, 30)), y + int(generator.integers(15, 30))]])
    return make_index(sizes, boxes)


@pytest.mark.parametrize("image_size", [64, 160])
def test_boxes_of_whole_samples_lie_on_white(image_size):
    index = random_index(12)
    config = make_config(image_size=image_size, hsv_h=0, hsv_s=0, hsv_v=0, flip_ud=0.5)
    source = Rectangles(index)
    dataset = TrainDataset(index, config, seed=3, max_epochs=100, pictures=PictureSource(index, config, source))
    checked = 0
    for sample in dataset.__getitems__([(0, i) for i in range(12)]):
        for x1, y1, x2, y2 in np.rint(sample.objects.boxes).astype(int):
            inside = sample.image[y1 + 2 : y2 - 2, x1 + 2 : x2 - 2]  # the edges are interpolated
            assert (inside > 200).all()
            sample.image[max(0, y1 - 2) : y2 + 2, max(0, x1 - 2) : x2 + 2] = 0
            checked += 1
        left = (sample.image > 128).all(axis=2).sum()
        assert left <= 40  # dropped slivers only: nothing white without a label
    assert checked > 10


def test_each_image_is_decoded_once_a_batch():
    index = random_index(5)
    source = Rectangles(index)
    dataset = TrainDataset(
        index, make_config(), seed=0, max_epochs=100, pictures=PictureSource(index, make_config(), source)
    )
    dataset.__getitems__([(0, i) for i in range(5)])
    assert max(source.reads.values()) == 1


def test_a_sample_does_not_depend_on_its_batch():
    index = random_index(8)
    dataset = TrainDataset(
        index,
        make_config(mixup=0.5),
        seed=0,
        max_epochs=100,
        pictures=PictureSource(index, make_config(mixup=0.5), Rectangles(index)),
    )
    together = dataset.__getitems__([(4, i) for i in range(8)])
    for i in (7, 2):
        alone = dataset[4, i]
        np.testing.assert_array_equal(alone.image, together[i].image)
        np.testing.assert_array_equal(alone.objects.boxes, together[i].objects.boxes)
        np.testing.assert_array_equal(alone.objects.classes, together[i].objects.classes)


def test_without_augmentation_a_sample_is_its_letterbox():
    index = random_index(6)
    config = make_config(image_size=96, **PLAIN)
    train = TrainDataset(index, config, seed=0, max_epochs=10, pictures=PictureSource(index, config, Rectangles(index)))
    val = ValDataset(index, config, images=Rectangles(index))
    for i in range(6):
        sample, item = train[0, i], val[i]
        np.testing.assert_array_equal(sample.image, item.image)
        expected = item.letterbox.boxes_to_canvas(index.boxes[index.rows(i)])
        np.testing.assert_allclose(sample.objects.boxes, expected, atol=1e-4)
        assert (sample.gains == 1).all()


def plan(*images: int, share: float = 1.0, gains=(1, 1, 1)) -> SamplePlan:
    placements = tuple(
        Placement((i,), meet=(1, 1), scale=1, degrees=0, shear=(0, 0), shift=(0, 0), flip_lr=False, flip_ud=False)
        for i in images
    )
    return SamplePlan(placements, share, np.array(gains, np.float32), 0)


def test_mixup_blends_pixels_and_keeps_all_objects():
    index = make_index([(64, 64)] * 2, [[[0, 0, 32, 32]], [[16, 16, 48, 48], [40, 40, 60, 60]]])
    render = Renderer(index, 64, Transforms([]), ColourHere())
    sample = render([plan(0, 1, share=0.75)], PictureSource(index, make_config(), Rectangles(index)))[0]
    assert sample.image[8, 8].tolist() == [191] * 3  # 0.75 * 255
    assert sample.image[45, 45].tolist() == [64] * 3  # 0.25 * 255
    assert sample.image[20, 20].tolist() == [255] * 3
    assert sample.objects.boxes.tolist() == [[0, 0, 32, 32], [16, 16, 48, 48], [40, 40, 60, 60]]
    assert sample.objects.classes.tolist() == [0, 1, 2]


def test_gains_are_applied_in_the_worker():
    index = make_index([(64, 64)], [[]])
    picture = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    gains = np.array([1.01, 0.6, 1.3], np.float32)
    source = PictureSource(index, make_config(), lambda _: picture)
    sample = Renderer(index, 64, Transforms([]), ColourHere())([plan(0, gains=gains)], source)[0]
    np.testing.assert_array_equal(sample.image, ColourTransform()(picture.copy(), gains))
    assert (sample.gains == 1).all()
    later = Renderer(index, 64, Transforms([]), ColourLater())([plan(0, gains=gains)], source)[0]
    np.testing.assert_array_equal(later.image, picture)
    np.testing.assert_array_equal(later.gains, gains)


def test_crowds_are_never_targets():
    index = make_index(
        [(64, 64)] * 3, [[[0, 0, 9, 9]] * 2, [], [[0, 0, 8, 8], [4, 4, 30, 30]]], crowd=[True, False, False, True]
    )
    left = learnable(index)
    assert left.offsets.tolist() == [0, 1, 1, 2]
    assert left.boxes.tolist() == [[0, 0, 9, 9], [0, 0, 8, 8]]
    assert left.classes.tolist() == [1, 2]
    dataset = TrainDataset(
        index,
        make_config(**PLAIN),
        seed=0,
        max_epochs=1,
        pictures=PictureSource(index, make_config(**PLAIN), Rectangles(index)),
    )
    assert [len(dataset[0, i].objects) for i in range(3)] == [1, 0, 1]


def test_pictures_that_the_window_misses_are_not_read():
    index = random_index(4)
    where = Placement((0, 1, 2, 3), (0.5, 0.5), 1.5, 0, (0, 0), (0, 0), flip_lr=False, flip_ud=False)
    assert [tile.image for tile in seen_tiles(where, index, 64)] == [3]
    assert len(place_objects(seen_tiles(where, index, 64), index, 64)) <= 1


def test_an_unreadable_file_stops_or_becomes_a_blank(tmp_path):
    index = write_split(tmp_path, 4)
    config = make_config(**PLAIN)
    (tmp_path / "003.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"003\.png.*data\.bad_images=skip"):
        TrainDataset(index, config, seed=0, max_epochs=1)[0, 3]
    config.bad_images = BadImages.SKIP
    sample = TrainDataset(index, config, seed=0, max_epochs=1)[0, 3]
    assert (sample.image == 114).all()
    assert len(sample.objects) == 0
    assert len(sample.problems) == 1
    assert "003.png" in sample.problems[0]
    item = ValDataset(index, config)[3]
    assert item.problem is not None
    assert (item.letterbox.width, item.letterbox.height) == tuple(index.sizes[3])


def test_a_file_that_is_not_the_labelled_one_is_refused(tmp_path):
    index = write_split(tmp_path, 2)
    index.sizes[1] += 5
    width, height = index.sizes[1]
    with pytest.raises(DataError, match=rf"001\.png: its picture has .* labels\.json are for {width}x{height}"):
        TrainDataset(index, make_config(**PLAIN), seed=0, max_epochs=1)[0, 1]
