"""The line of an epoch: means over its steps, whatever the readings were."""

from __future__ import annotations

import pytest

from lucid_yolo.engine.progress import EpochRow, mean_row


def test_mean_over_steps_by_hand() -> None:
    first = EpochRow(2, {"train/total": 4.0, "lr": 0.1, "images_per_second": 10.0})
    second = EpochRow(2, {"train/total": 1.0, "lr": 0.05, "images_per_second": 40.0})
    mean = mean_row([(1, first), (2, second)])
    assert mean.values == {"train/total": pytest.approx(2.0), "lr": 0.05, "images_per_second": pytest.approx(30.0)}
    assert mean.epoch == 2
