"""The machines that the tests of this folder run on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lucid_yolo.engine.environment import numeric_settings
from tests.perf.capture.machine import Machine


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """With deterministic arithmetic, as in a run."""
    with numeric_settings(deterministic="strict", cuda=request.param == "cuda"):
        yield Machine(request.param)
