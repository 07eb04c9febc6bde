"""What a run that waited for its data is told."""

from __future__ import annotations

import pytest

from lucid_yolo.config.schema import CacheName, HsvName, PrefetchName
from lucid_yolo.perf.plan import resolve
from lucid_yolo.perf.rules import DataFacts
from lucid_yolo.perf.waiting import advise_on_waiting
from tests.perf.machines import CACHE_BYTES, CPU, CUDA, make_config

DATA = DataFacts(num_train=205, num_val=87, num_larger=0, largest=(640, 480), cache_bytes=CACHE_BYTES)
EVERY = {"cache": CacheName.DECODED, "hsv": HsvName.DEVICE, "prefetch": PrefetchName.EPOCH}


@pytest.mark.parametrize(
    ("machine", "on", "workers", "epochs", "named"),
    [
        (CUDA, (), 2, 9, "cache=decoded, hsv=device, prefetch=epoch, data.num_workers above 2"),
        (CUDA, ("cache", "prefetch"), 3, 9, "hsv=device"),
        (CUDA, ("hsv",), 3, 1, "cache=decoded"),  # no next epoch
        (CUDA, ("cache", "hsv"), 0, 9, "data.num_workers above 0"),  # prefetch needs workers
        (CPU, (), 3, 9, "cache=decoded"),  # the others need a device
        (CUDA, ("cache", "hsv", "prefetch"), 3, 9, None),  # all is on, and every core but one prepares batches
    ],
)
def test_what_would_help_is_named(machine, on, workers, epochs, named):
    plan = resolve(make_config(**{name: EVERY[name] for name in on}), machine, DATA)
    sentence = advise_on_waiting(0.283, plan, workers=workers, epochs=epochs)
    expected = f"28% of the training time went into waiting for data. What may help: {named}."
    assert sentence == (None if named is None else expected)


@pytest.mark.parametrize("share", [None, 0.0, 0.09])
def test_a_run_that_did_not_wait_is_told_nothing(share):
    assert advise_on_waiting(share, resolve(make_config(), CUDA, DATA), workers=0, epochs=9) is None
