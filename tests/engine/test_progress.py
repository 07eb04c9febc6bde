"""The line of an epoch: means over its steps, whatever the readings were."""

from __future__ import annotations

from pathlib import Path

import pytest

from lucid_yolo.engine import progress
from lucid_yolo.engine.console import RunConsole
from lucid_yolo.engine.progress import EpochRow, mean_row


def test_mean_over_steps_by_hand() -> None:
    first = EpochRow(2, {"train/total": 4.0, "lr": 0.1, "images_per_second": 10.0})
    second = EpochRow(2, {"train/total": 1.0, "lr": 0.05, "images_per_second": 40.0})
    mean = mean_row([(1, first), (2, second)])
    assert mean.values == {"train/total": pytest.approx(2.0), "lr": 0.05, "images_per_second": pytest.approx(30.0)}
    assert mean.epoch == 2


def test_a_long_epoch_says_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    values = {"train/total": 2.0, "lr": 0.1, "images_per_second": 4.0, "data_wait_share": 0.0}
    with RunConsole(tmp_path / "log") as console:
        shown = progress.Progress(console, live=False, silent=True)
        shown.start(2, 40)
        for batches, moment in ((1, 30.0), (10, 61.0), (20, 90.0), (30, 130.0), (40, 131.0)):
            clock[0] = moment
            shown.update(EpochRow(0, values), steps=10, batches_done=batches)
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line.partition("  ")[2][:11] for line in lines] == ["batch 10/40", "batch 30/40", "total 2.000"]
