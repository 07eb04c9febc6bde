from __future__ import annotations

import colorsys
import hashlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest

from lucid_yolo.data.shapes.draws import Draws
from lucid_yolo.data.shapes.geometry import CLASS_NAMES, make_shape
from lucid_yolo.data.shapes.scene import Scene, draw_scene, object_mask

COUNT = 40


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return [draw_scene((0, 0, i), size=160) for i in range(COUNT)]


def digest(scenes: list[Scene]) -> str:
    hashed = hashlib.sha256()
    for scene in scenes:
        hashed.update(scene.image.tobytes())
        for shape in scene.shapes:
            hashed.update(shape.outline.tobytes() + shape.keypoints.tobytes() + shape.corners.tobytes())
    return hashed.hexdigest()[:16]


def test_draws_are_the_published_bits() -> None:
    # PCG64 of SeedSequence((1, 2)), top 53 bits, as the guaranteed interfaces give them
    bits = np.random.PCG64(np.random.SeedSequence((1, 2))).random_raw(3)
    expected = [(int(b) >> 11) / 2**53 for b in bits]
    assert Draws(1, 2).uniforms(3).tolist() == expected
    assert all(Draws(1, i).integer(2, 5) in (2, 3, 4) for i in range(50))
    assert {Draws(1, i).integer(2, 5) for i in range(50)} == {2, 3, 4}


def test_same_pixels_everywhere(scenes: list[Scene]) -> None:
    assert digest(scenes[:8]) == "29d131b8224cd586"  # a new value needs a new _VERSION of the cache


def test_order_and_threads_have_no_influence(scenes: list[Scene]) -> None:
    with ThreadPoolExecutor(4) as pool:
        again = list(pool.map(lambda i: draw_scene((0, 0, i), size=160), reversed(range(COUNT))))
    assert digest(again[::-1]) == digest(scenes)


def test_key_parts_change_the_scene(scenes: list[Scene]) -> None:
    others = [draw_scene(key, size=160) for key in ((1, 0, 0), (0, 1, 0), (0, 0, 1))]
    assert len({digest([scene]) for scene in [scenes[0], *others]}) == 4


def test_boxes_are_tight_around_the_masks(scenes: list[Scene]) -> None:
    for scene in scenes:
        for shape in scene.shapes:
            rows, columns = np.nonzero(object_mask(shape, (160, 160)))
            envelope = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
            inner = np.array([1, 1, -1, -1]) * (envelope - np.array(shape.box))
            # a pixel needs half its area covered: the sharp tips of stars and triangles reach a little further
            assert inner.min() > -0.63  # half a pixel, and half a sample row
            assert inner.max() < (1.01 if CLASS_NAMES[shape.label] in ("ellipse", "rectangle") else 4.0)


def test_masks_match_polygons_drawn_by_another_library(scenes: list[Scene]) -> None:
    for scene in scenes:
        for shape in scene.shapes:
            big = np.zeros((1600, 1600), np.uint8)
            cv2.fillPoly(big, [np.rint(shape.outline * 10 - 0.5).astype(np.int32)], 1)
            other = big.reshape(160, 10, 160, 10).mean(axis=(1, 3)) >= 0.5
            mask = object_mask(shape, (160, 160))
            assert (mask & other).sum() / (mask | other).sum() > 0.95


def test_objects_are_large_whole_and_mostly_visible(scenes: list[Scene]) -> None:
    for scene in scenes:
        assert 1 <= len(scene.shapes) <= 6
        seen = np.zeros((160, 160), bool)
        for shape in reversed(scene.shapes):
            x1, y1, x2, y2 = shape.box
            assert min(x1, y1) >= 1
            assert max(x2, y2) <= 159
            assert max(x2 - x1, y2 - y1) >= 16
            mask = object_mask(shape, (160, 160))
            assert (mask & seen).sum() <= 0.25 * mask.sum()
            seen |= mask
    labels = Counter(shape.label for scene in scenes for shape in scene.shapes)
    assert set(labels) == set(range(len(CLASS_NAMES)))
    assert max(labels.values()) < 2 * min(labels.values())


def test_key_points_lie_inside_and_are_drawn_unless_covered(scenes: list[Scene]) -> None:
    hidden = 0
    for scene in scenes:
        assert scene.visible.shape == (len(scene.shapes), 3)
        for number, shape in enumerate(scene.shapes):
            outline = shape.outline.astype(np.float32)
            for point, visible in zip(shape.keypoints, scene.visible[number], strict=True):
                assert cv2.pointPolygonTest(outline, point.tolist(), False) >= 0
                later = [s.outline.astype(np.float32) for s in scene.shapes[number + 1 :]]
                depth = [cv2.pointPolygonTest(o, point.tolist(), True) for o in later]
                if all(abs(d) > 1.5 for d in depth):  # not at a border
                    assert visible == all(d < 0 for d in depth)
                hidden += not visible
    assert hidden > 0


def test_corners_hold_the_outline_tightly() -> None:
    for label in range(len(CLASS_NAMES)):
        shape = make_shape(label, center=(80.0, 70.0), radius=30.0, aspect=0.8, angle=0.7)
        origin = shape.corners[0]
        across, down = shape.corners[1] - origin, shape.corners[3] - origin
        assert abs(float(across @ down)) < 0.02 * np.linalg.norm(across) * np.linalg.norm(down)
        relative = np.stack(
            ((shape.outline - origin) @ across / (across @ across), (shape.outline - origin) @ down / (down @ down))
        )
        np.testing.assert_allclose(relative.min(axis=1), 0, atol=2e-3)
        np.testing.assert_allclose(relative.max(axis=1), 1, atol=2e-3)
        np.testing.assert_allclose(shape.corners[2], origin + across + down, atol=0.03)


def test_each_class_has_a_range_of_colours_around_its_hue(scenes: list[Scene]) -> None:
    turns: dict[int, list[float]] = {}
    for scene in scenes:
        for shape, seen in zip(scene.shapes, scene.visible, strict=True):
            if seen[0]:
                x, y = shape.keypoints[0].astype(int)
                hue = colorsys.rgb_to_hsv(*(scene.image[y, x] / 255.0))[0]
                away = (hue - shape.label / len(CLASS_NAMES) + 0.5) % 1.0 - 0.5
                turns.setdefault(shape.label, []).append(away)
    assert len(turns) == len(CLASS_NAMES)
    for values in turns.values():
        assert max(map(abs, values)) < 0.11  # 0.1 and the rounding of pixels
        assert np.std(values) > 0.04  # uniform over 0.2 turns has 0.058


@pytest.mark.parametrize("size", [96, 320])
def test_other_sizes(size: int) -> None:
    scene = draw_scene((3, 0, 5), size=size)
    assert scene.image.shape == (size, size, 3)
    assert all(size - 1 >= max(shape.box) for shape in scene.shapes)


def test_more_objects_on_a_wide_picture_are_smaller() -> None:
    scenes = [draw_scene((0, 0, i), size=320, height=240, max_objects=15) for i in range(COUNT)]
    counts = [len(scene.shapes) for scene in scenes]
    assert 6.5 < np.mean(counts) < 9  # one to 15, less what finds no room
    assert max(counts) > 10
    for scene in scenes:
        assert scene.image.shape == (240, 320, 3)
        for shape in scene.shapes:
            x1, y1, x2, y2 = shape.box
            assert min(x1, y1) >= 1
            assert (x2 <= 319, y2 <= 239) == (True, True)
            # radius at most 48 / 160 of the shorter side, a square root of 5 / 15 smaller
            assert max(x2 - x1, y2 - y1) <= 2 * 240 * 48 / 160 * (5 / 15) ** 0.5 + 0.2
    assert max(shape.box[2] for scene in scenes for shape in scene.shapes) > 300  # the whole width is used
