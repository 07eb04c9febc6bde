"""Worker counts on made-up machines."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from lucid_yolo.data.empty import empty_targets
from lucid_yolo.data.labels.base import KeypointSpec, LabelKind, LabelSpec
from lucid_yolo.data.workers import WorkerChoice, batch_bytes, choose_num_workers

MIB = 1024**2
GIB = 1024**3


@pytest.mark.parametrize(
    ("cores", "batches", "count"),
    [(1, 100, 0), (2, 100, 1), (4, 100, 3), (8, 100, 7), (9, 100, 8), (64, 100, 8), (64, 3, 3)],
)
def test_without_a_limit(cores, batches, count):
    choice = choose_num_workers(None, cores=cores, free_shm=None, batch_bytes=MIB, batches=batches)
    assert choice == WorkerChoice(count)


def test_a_small_dev_shm_caps_and_says_so():
    choice = choose_num_workers(None, cores=16, free_shm=64 * MIB, batch_bytes=5 * MIB, batches=100)
    assert choice.count == 3  # 3 x 2 x 5 MiB = 30 of the 32 MiB that are half of what is free
    assert choice.warning is None
    assert choice.note is not None
    for number in (
        "3 loader workers instead of 8",
        "8 workers x 2 batches x 5.0 MiB = 0.08 GiB",
        "0.03 GiB",
        "/dev/shm",
    ):
        assert number in choice.note


def test_no_room_at_all_means_no_workers():
    choice = choose_num_workers(None, cores=16, free_shm=0, batch_bytes=5 * MIB, batches=100)
    assert choice.count == 0
    assert choice.note is not None


def test_a_named_count_is_kept_and_warned_about():
    choice = choose_num_workers(32, cores=2, free_shm=8 * GIB, batch_bytes=192 * MIB, batches=5)
    assert choice.count == 32
    assert choice.note is None
    assert choice.warning is not None
    assert "data.num_workers=32" in choice.warning
    assert "32 workers x 2 batches x 192.0 MiB = 12.00 GiB" in choice.warning
    assert "4.00 GiB" in choice.warning
    assert "data.num_workers=10" in choice.warning
    assert choose_num_workers(0, cores=2, free_shm=0, batch_bytes=MIB, batches=5) == WorkerChoice(0)
    assert choose_num_workers(10, cores=2, free_shm=8 * GIB, batch_bytes=192 * MIB, batches=5) == WorkerChoice(10)


def test_bytes_of_a_batch_by_hand():
    # 2 images of 3 * 32 * 32 bytes, 3 float32 gains and an int64 number each; 16 rows of 8 + 8 + 16 + 1 bytes, and
    # as many bytes for the other labels of a row as ``Targets`` says
    spec = LabelSpec(1, KeypointSpec(("a", "b"), (), None, None))
    added = {LabelKind.BOXES: 0, LabelKind.POLYGONS: 8 * 1, LabelKind.KEYPOINTS: 2 * 3 * 4, LabelKind.CORNERS: 5 * 4}
    for labels, more in added.items():
        targets = empty_targets(labels, spec, rows=16, image_size=32)
        found = batch_bytes(batch_size=2, image_size=32, targets=targets)
        assert found == 2 * 3072 + 2 * 12 + 2 * 8 + 16 * (33 + more)


def test_a_worker_survives_the_signal_to_its_group_and_obeys_its_parent():
    code = (
        "from lucid_yolo.data.workers import start_worker; start_worker(0); print(1, flush=True)\nwhile True: input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        worker.stdout.readline()
        worker.send_signal(signal.SIGINT)
        worker.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            worker.wait(timeout=1)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=20) == -signal.SIGTERM
