"""The loaders: the same batches for any number of workers, exact resume, closing, failures that reach the user."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np
import pytest
import torch

from lucid_yolo.config.errors import DataError, RunError
from lucid_yolo.config.schema import BadImages
from lucid_yolo.data.batch import Batch
from lucid_yolo.data.loader import Receiver, TrainLoader, ValLoader, _end_workers
from lucid_yolo.data.queues import epoch_order
from tests.data.splits import PLAIN, make_config, write_split

IMAGES = 10
BATCH = 4  # three batches an epoch, the last one filled by wrapping


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return write_split(tmp_path_factory.mktemp("pictures"), IMAGES)


def make_loader(
    index, *, workers: int = 0, seed: int = 0, max_epochs: int = 20, context=None, **changes
) -> TrainLoader:
    config = make_config(image_size=32, batch_size=BATCH, **changes)
    return TrainLoader(
        index,
        config,
        seed=seed,
        max_epochs=max_epochs,
        num_workers=workers,
        pin_memory=False,
        multiprocessing_context=context,
    )


def flat(batch: Batch) -> list[np.ndarray]:
    targets = batch.targets
    tensors = [
        batch.images,
        batch.gains,
        batch.indices,
        targets.image_index,
        targets.classes,
        targets.boxes,
        targets.valid,
    ]
    return [tensor.numpy().copy() for tensor in tensors]


def drain(batches: Iterable[Batch]) -> list[list[np.ndarray]]:
    return [flat(batch) for batch in batches]


def assert_equal(first: list[list[np.ndarray]], second: list[list[np.ndarray]]) -> None:
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left, right)


@pytest.fixture(scope="module")
def reference(index):
    """Three epochs without workers."""
    loader = make_loader(index, mixup=0.3)
    return [drain(loader) for _ in range(3)]


@pytest.mark.parametrize("workers", [2, 8])
def test_a_seed_gives_the_same_batches_for_any_number_of_workers(index, reference, workers):
    loader = make_loader(index, workers=workers, mixup=0.3)
    for epoch in reference[:2]:
        assert_equal(drain(loader), epoch)
    loader.close()


def test_a_server_of_forks_gives_the_same_batches(index, reference):
    loader = make_loader(index, workers=1, context="forkserver", mixup=0.3)
    assert_equal(drain(loader), reference[0])
    loader.close()


def test_spawned_workers_give_the_same_batches_and_have_the_transforms_of_the_configuration(index):
    listed = [
        {"_target_": "albumentations.InvertImg", "p": 1.0},
        {"_target_": "albumentations.HorizontalFlip", "p": 0.5},
    ]
    here = drain(make_loader(index, transforms=listed, mixup=0.3))
    loader = make_loader(index, workers=1, context="spawn", transforms=listed, mixup=0.3)
    assert_equal(drain(loader), here)
    loader.close()
    plain = drain(make_loader(index, mixup=0.3))
    assert all((one[0] != other[0]).any() for one, other in zip(here, plain, strict=True))


def test_other_seeds_and_other_epochs_give_other_batches(index, reference):
    other_seed = drain(make_loader(index, seed=1, mixup=0.3))
    for other in (other_seed, reference[1]):
        for one, two in zip(reference[0], other, strict=True):
            assert (one[0] != two[0]).any()
    assert [b[2].tolist() for b in reference[0]] != [b[2].tolist() for b in reference[1]]


def test_an_epoch_shows_every_image_and_fills_its_last_batch_by_wrapping(reference):
    for number, epoch in enumerate(reference):
        shown = np.concatenate([batch[2] for batch in epoch])
        order = epoch_order(0, number, IMAGES)
        assert sorted(order) == list(range(IMAGES))
        assert shown.tolist() == [*order, *order[:2]]
        assert all(batch[0].shape == (BATCH, 32, 32, 3) for batch in epoch)


def test_a_set_smaller_than_a_batch_is_repeated(tmp_path):
    loader = make_loader(write_split(tmp_path, 1))
    assert len(loader) == 1
    assert next(iter(loader)).indices.tolist() == [0] * BATCH


@pytest.mark.parametrize("workers", [0, 2])
def test_resume_at_every_batch_equals_the_uninterrupted_order(index, reference, workers):
    loader = make_loader(index, workers=workers, mixup=0.3)
    for epoch in range(2):
        for batch in range(len(loader)):
            loader.start_at(epoch, batch)
            assert_equal(drain(loader), reference[epoch][batch:])
            assert_equal(drain(loader), reference[epoch + 1])  # and goes on by itself
    loader.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_who_counts_batches_and_never_sees_the_end_gets_the_next_epoch(index, reference, workers):
    loader = make_loader(index, workers=workers, mixup=0.3)
    iterator = iter(loader)
    assert_equal([flat(next(iterator)) for _ in range(len(loader))], reference[0])
    assert_equal(drain(loader), reference[1])
    loader.close()


def test_an_epoch_left_early_is_over(index, reference):
    loader = make_loader(index, mixup=0.3)
    iter(loader)  # made and not used: still the same epoch
    next(iter(loader))
    assert_equal(drain(loader), reference[1])


def test_positions_outside_an_epoch_are_refused(index):
    loader = make_loader(index)
    for epoch, batch in ((0, 3), (-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="is not a position"):
            loader.start_at(epoch, batch)


@pytest.mark.parametrize("workers", [0, 2])
def test_persistent_workers_close_the_mosaic(index, workers):
    """Without other augmentation a closed epoch shows plain letterboxes, and an open one shows mosaics."""
    changes = PLAIN | {"mosaic": 1.0, "close_mosaic": 2}
    loader = make_loader(index, workers=workers, max_epochs=4, **changes)
    config = make_config(image_size=32, batch_size=1)
    plain = [batch.images[0].numpy() for batch in ValLoader(index, config, num_workers=0, pin_memory=False)]
    closed = []
    for _ in range(4):
        batches = drain(loader)
        closed.append(all((batch[0][k] == plain[i]).all() for batch in batches for k, i in enumerate(batch[2])))
    assert closed == [False, False, True, True]
    loader.start_at(2, 1)  # a resumed run, too
    batch = next(iter(loader))
    assert (batch.images[0].numpy() == plain[int(batch.indices[0])]).all()
    loader.close()


def test_the_random_state_of_the_run_is_left_alone(index):
    torch.manual_seed(3)
    expected = torch.get_rng_state()
    loader = make_loader(index, workers=1)
    drain(loader)
    loader.close()
    assert torch.equal(torch.get_rng_state(), expected)


def test_waiting_is_counted(index):
    loader = make_loader(index)
    assert loader.wait_seconds == 0
    drain(loader)
    first = loader.wait_seconds
    assert 0 < first < 60
    drain(loader)
    assert loader.wait_seconds > first


def test_images_of_a_worker_arrive_in_shared_memory(index):
    loader = make_loader(index, workers=1)
    assert next(iter(loader)).images.is_shared()
    loader.close()


@pytest.fixture
def broken(tmp_path):
    index = write_split(tmp_path, IMAGES)
    (tmp_path / "006.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    return index


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_file_is_one_sentence(broken, workers):
    loader = make_loader(broken, workers=workers)
    with pytest.raises(DataError, match=r"^image .*006\.png: .*data\.bad_images=skip") as caught:
        drain(loader)
    assert "Traceback" not in str(caught.value)
    assert "\n" not in str(caught.value)
    loader.close()
    val = ValLoader(broken, make_config(image_size=32), num_workers=workers, pin_memory=False)
    with pytest.raises(DataError, match=r"^image .*006\.png"):
        list(val)
    val.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_skipped_file_is_named_once(broken, workers):
    config = make_config(image_size=32, batch_size=BATCH, **PLAIN)
    config.bad_images = BadImages.SKIP
    loader = TrainLoader(broken, config, seed=0, max_epochs=5, num_workers=workers, pin_memory=False)
    with pytest.warns(UserWarning, match=r"006\.png.*blank") as caught:
        batches = drain(loader)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batches += drain(loader)
    loader.close()
    assert len(caught) == 1
    shown = [(batch, k) for batch in batches for k, i in enumerate(batch[2]) if i == 6]
    assert len(shown) >= 2
    for batch, k in shown:
        assert (batch[0][k] == 114).all()
        assert not (batch[6] & (batch[3] == k)).any()
    val = ValLoader(broken, config, num_workers=workers, pin_memory=False)
    with pytest.warns(UserWarning, match=r"006\.png.*; its objects count as missed"):
        list(val)
    val.close()


def test_a_worker_that_dies_is_explained():
    def stream():
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Bus error. ")
        yield

    with pytest.raises(RunError, match=r"worker died: .*Bus error\. .*shared memory \(/dev/shm\).*num_workers"):
        Receiver("left out").take(stream())


@pytest.mark.parametrize(
    ("error", "words"),
    [(ConnectionResetError(104, "Connection reset by peer"), "reset by peer"), (EOFError(), "EOFError")],
)
def test_a_worker_that_dies_while_it_hands_over_a_batch_is_explained(error, words):
    def stream():
        raise error
        yield

    with pytest.raises(RunError, match=rf"worker died: .*{words}.*num_workers"):
        Receiver("").take(stream())


def test_a_dead_worker_does_not_disturb_the_end() -> None:
    class Dead:
        def _shutdown_workers(self):
            raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")

    class Pool:
        _iterator = Dead()

    pool = Pool()
    _end_workers(pool)
    assert pool._iterator is None


def test_other_errors_of_the_loader_are_not_renamed():
    def stream():
        raise RuntimeError("something else")
        yield

    with pytest.raises(RuntimeError, match="something else"):
        Receiver("left out").take(stream())


@pytest.mark.parametrize("workers", [0, 2])
def test_validation_is_complete_in_order_and_of_one_shape(index, workers):
    config = make_config(image_size=32, batch_size=BATCH)
    loader = ValLoader(index, config, num_workers=workers, pin_memory=False)
    for _ in range(2):
        batches = list(loader)
        assert len(batches) == len(loader) == 3
        assert torch.cat([batch.indices for batch in batches]).tolist() == [*range(IMAGES), -1, -1]
        assert all(batch.images.shape == (BATCH, 32, 32, 3) for batch in batches)
        sizes = [(box.width, box.height) for batch in batches for box in batch.letterboxes][:IMAGES]
        assert sizes == [tuple(size) for size in index.sizes.tolist()]
    loader.close()
    config.val_batch_size = 5
    assert len(ValLoader(index, config, num_workers=0, pin_memory=False)) == 2
