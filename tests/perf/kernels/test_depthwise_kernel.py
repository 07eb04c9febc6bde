"""The kernels for depthwise convolutions in Triton's interpreter; compiled, they are compared in ``tests/gpu``."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.checkout import run_python
from tests.perf.kernels.depthwise_cases import SMALL


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed here")
def test_the_kernels_are_the_definition() -> None:
    done = run_python("-m", "tests.perf.kernels.interpreted_depthwise")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{' '.join(map(str, shape))} right" for shape, _ in SMALL]
