"""Fixtures and settings that every test shares."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# The same examples in every run, however slow the machine: a suite that gates others must not fail by luck.
# `nox -s explore` searches with new examples.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True)
hypothesis.settings.load_profile("repeatable")

# Networks and traces are many small objects: at Python's own thresholds a fifth of the suite's time goes to the
# collector of cycles. It still runs, and less often.
gc.set_threshold(20_000, 10, 10)

# Before anything imports numpy, cv2 or torch: a test's time and bits must not depend on the cores of the machine.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")


@pytest.fixture(scope="session")
def test_data() -> Path:
    """Folder of real data sets and odd files; tests that need it are skipped where it is not given."""
    folder = os.environ.get("LUCID_YOLO_TEST_DATA")
    if not folder:
        pytest.skip("LUCID_YOLO_TEST_DATA names no folder of real data")
    path = Path(folder)
    assert path.is_dir(), f"LUCID_YOLO_TEST_DATA={folder} is no folder"
    return path


@pytest.fixture(scope="session", autouse=True)
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the user's cache out of the tests; drawn data is made once a session, also for the processes they start."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LUCID_YOLO_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def single_thread() -> None:
    """One torch thread, where torch is used at all: the order of sums is then fixed."""
    import torch

    torch.set_num_threads(1)
