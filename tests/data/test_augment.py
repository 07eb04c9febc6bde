"""Random plans: ranges, probabilities, closing, and independence of the streams."""

from __future__ import annotations

import numpy as np
import pytest

from lucid_yolo.config.schema import AugmentConfig
from lucid_yolo.data.augment import draw_plan, is_closed, sample_generator

N = 37


def plans(augment: AugmentConfig, count: int = 600, *, closed: bool = False, seed: int = 0):
    return [
        draw_plan(sample_generator(seed, 0, i), i % N, num_images=N, augment=augment, closed=closed)
        for i in range(count)
    ]


def test_ranges_are_filled_and_kept():
    augment = AugmentConfig(scale=0.5, translate=0.1, degrees=20, shear=5, hsv_h=0.015, hsv_s=0.7, hsv_v=0.4)
    drawn = plans(augment)
    placements = [plan.placements[0] for plan in drawn]
    for values, low, high in [
        ([p.scale for p in placements], 0.5, 1.5),
        ([p.shift[0] for p in placements], -0.1, 0.1),
        ([p.degrees for p in placements], -20, 20),
        ([p.shear[1] for p in placements], -5, 5),
        ([p.meet[0] for p in placements], 0.5, 1.5),
        ([plan.gains[0] for plan in drawn], 0.985, 1.015),
        ([plan.gains[1] for plan in drawn], 0.3, 1.7),
        ([plan.gains[2] for plan in drawn], 0.6, 1.4),
    ]:
        assert low <= min(values)
        assert max(values) <= high
        assert min(values) < low + 0.03 * (high - low)
        assert max(values) > high - 0.03 * (high - low)


def test_probabilities():
    drawn = plans(AugmentConfig(mosaic=0.7, mixup=0.25, flip_lr=0.5, flip_ud=0.1))
    share = [
        np.mean([len(plan.placements[0].images) == 4 for plan in drawn]),
        np.mean([len(plan.placements) == 2 for plan in drawn]),
        np.mean([plan.placements[0].flip_lr for plan in drawn]),
        np.mean([plan.placements[0].flip_ud for plan in drawn]),
    ]
    np.testing.assert_allclose(share, [0.7, 0.25, 0.5, 0.1], atol=0.06)  # three standard errors


def test_partners_are_uniform_over_the_set():
    partners = [image for plan in plans(AugmentConfig(), 2000) for image in plan.placements[0].images[1:]]
    counts = np.bincount(partners, minlength=N)
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert chi_square < 68  # 99.9th percentile at 36 degrees of freedom


def test_the_own_image_is_always_there():
    assert all(plan.placements[0].images[0] == i % N for i, plan in enumerate(plans(AugmentConfig(mixup=0.5), 50)))


def test_mixing_shares_are_near_one_half():
    shares = [plan.share for plan in plans(AugmentConfig(mixup=1.0), 400)]
    np.testing.assert_allclose([np.mean(shares), np.std(shares)], [0.5, 0.5 / np.sqrt(65)], atol=0.01)  # Beta(32, 32)
    assert {plan.share for plan in plans(AugmentConfig(mixup=0.0), 20)} == {1.0}


def test_closed_epochs_see_whole_pictures_only():
    for plan in plans(AugmentConfig(mixup=1.0), 50, closed=True):
        assert len(plan.placements) == 1
        assert len(plan.placements[0].images) == 1


@pytest.mark.parametrize(
    ("epoch", "close", "expected"),
    [(89, 10, False), (90, 10, True), (99, 10, True), (99, 0, False), (0, 100, True), (0, 200, True)],
)
def test_closing(epoch, close, expected):
    assert is_closed(epoch, max_epochs=100, close_mosaic=close) is expected


def test_streams_differ_by_seed_epoch_and_image():
    keys = [(s, e, i) for s in range(3) for e in range(3) for i in range(3)]
    draws = {key: tuple(sample_generator(*key).integers(0, 2**31, 4)) for key in keys}
    assert len(set(draws.values())) == len(keys)
    assert draws[1, 2, 0] == tuple(sample_generator(1, 2, 0).integers(0, 2**31, 4))


def test_ranges_of_zero_give_gains_of_exactly_one():
    drawn = plans(AugmentConfig(hsv_h=0, hsv_s=0, hsv_v=0), 20)
    assert all((plan.gains == 1).all() and plan.gains.dtype == np.float32 for plan in drawn)
