"""Preparing the next epoch ahead: the same batches as without, wherever a fit begins, and nothing beyond its end."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from lucid_yolo.config.errors import DataError
from lucid_yolo.config.schema import PrefetchName
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.loader import TrainLoader, ValLoader
from lucid_yolo.data.source import Picture
from lucid_yolo.data.workers import PREFETCH
from tests.data.splits import PLAIN, make_config, write_split
from tests.data.test_loader import BATCH, IMAGES, assert_equal, drain, flat

EPOCHS = 4


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return write_split(tmp_path_factory.mktemp("pictures"), IMAGES)


def make_loader(
    index, *, workers: int, context=None, prefetch=PrefetchName.EPOCH, epochs=EPOCHS, pictures=None, **changes
):
    return TrainLoader(
        index,
        make_config(image_size=32, batch_size=BATCH, **changes),
        seed=0,
        max_epochs=epochs,
        num_workers=workers,
        pin_memory=False,
        multiprocessing_context=context,
        pictures=pictures,
        prefetch=prefetch,
    )


CLOSING = {"mixup": 0.3, "close_mosaic": 2}


@pytest.fixture(scope="module")
def reference(index):
    """A whole fit without workers and without prefetching; its last two epochs are closed."""
    loader = make_loader(index, workers=0, prefetch=PrefetchName.NONE, **CLOSING)
    return [drain(loader) for _ in range(EPOCHS)]


@pytest.mark.parametrize(("workers", "context"), [(0, None), (1, "fork"), (2, "fork"), (1, "spawn"), (2, "spawn")])
def test_a_fit_sees_the_same_batches(index, reference, workers, context):
    loader = make_loader(index, workers=workers, context=context, **CLOSING)
    for epoch in reference:
        assert_equal(drain(loader), epoch)
    loader.close()


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_fit_that_begins_anywhere_sees_the_rest(index, reference, workers):
    """Also inside an epoch whose successor is being prepared: the loader forgets that."""
    loader = make_loader(index, workers=workers, **CLOSING)
    for epoch in range(EPOCHS - 1):
        for batch in range(len(loader)):
            loader.start_at(epoch, batch)
            assert_equal(drain(loader), reference[epoch][batch:])
            assert_equal(drain(loader), reference[epoch + 1])
    loader.start_at(EPOCHS - 1, 1)
    assert_equal(drain(loader), reference[-1][1:])
    loader.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_who_counts_batches_and_never_sees_the_end_gets_the_next_epoch(index, reference, workers):
    loader = make_loader(index, workers=workers, **CLOSING)
    for epoch in reference:
        iterator = iter(loader)
        assert_equal([flat(next(iterator)) for _ in range(len(loader))], epoch)
    loader.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_left_early_is_over_and_so_is_a_closed_loader(index, reference, workers):
    loader = make_loader(index, workers=workers, **CLOSING)
    iter(loader)  # made and not used: still the same epoch
    next(iter(loader))
    assert_equal(drain(loader), reference[1])
    loader.close()
    assert_equal(drain(loader), reference[2])
    assert_equal(drain(loader), reference[3])
    loader.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_epochs_beyond_the_plan_stand_alone(index, workers):
    planned, longer = (make_loader(index, workers=workers, epochs=epochs, **PLAIN) for epochs in (1, 3))
    for _ in range(3):
        assert_equal(drain(planned), drain(longer))
    planned.close()
    longer.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_close_the_mosaic_on_time(index, workers):
    """Without other augmentation a closed epoch shows plain letterboxes, and an open one shows mosaics."""
    loader = make_loader(index, workers=workers, **(PLAIN | {"mosaic": 1.0, "close_mosaic": 2}))
    config = make_config(image_size=32, batch_size=1)
    plain = [batch.images[0].numpy() for batch in ValLoader(index, config, num_workers=0, pin_memory=False)]
    closed = [
        all((batch[0][k] == plain[i]).all() for batch in drain(loader) for k, i in enumerate(batch[2]))
        for _ in range(EPOCHS)
    ]
    assert closed == [False, False, True, True]
    loader.close()


@dataclass(frozen=True)
class Counted:
    """Gray pictures; every reading leaves a byte in a file that all processes share."""

    index: SplitIndex
    log: Path

    def __call__(self, image: int) -> Picture:
        with self.log.open("ab", buffering=0) as file:
            file.write(b".")
        return Picture(np.full((32, 32, 3), 90, np.uint8))

    @property
    def count(self) -> int:
        return self.log.stat().st_size

    def after(self, expected: int) -> int:
        """Readings a while after as many as expected, however slow the machine; fewer where they never come."""
        deadline = time.monotonic() + 60
        while self.count < expected and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.5)
        return self.count


@pytest.mark.parametrize(("prefetch", "ahead"), [(PrefetchName.NONE, 0), (PrefetchName.EPOCH, PREFETCH)])
def test_the_next_epoch_is_ready_when_it_begins_and_the_last_one_prepares_nothing(index, tmp_path, prefetch, ahead):
    pictures = Counted(index, tmp_path / "log")
    loader = make_loader(index, workers=1, prefetch=prefetch, epochs=2, pictures=pictures, **PLAIN)
    epoch = len(loader) * BATCH
    drain(loader)
    assert pictures.after(epoch + ahead * BATCH) == epoch + ahead * BATCH
    assert len(loader.first_waits) == 1
    drain(loader)
    assert pictures.after(2 * epoch) == 2 * epoch
    assert len(loader.first_waits) == 2
    assert sum(loader.first_waits) < loader.wait_seconds
    loader.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_file_of_the_next_epoch_is_told_when_it_is_its_turn(tmp_path, workers):
    index = write_split(tmp_path, IMAGES)
    loader = make_loader(index, workers=workers, **PLAIN)
    last = drain(loader)[-1]
    assert len(last[2]) == BATCH
    path = tmp_path / "006.png"
    whole = path.read_bytes()
    path.write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(DataError, match=r"006\.png"):
        [drain(loader) for _ in range(2)]  # what lies ready was read before
    path.write_bytes(whole)
    loader.start_at(1, 0)
    expected = make_loader(index, workers=0, prefetch=PrefetchName.NONE, **PLAIN)
    expected.start_at(1, 0)
    assert_equal(drain(loader), drain(expected))
    loader.close()
