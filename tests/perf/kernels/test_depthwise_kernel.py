"""The kernels for depthwise convolutions in Triton's interpreter; compiled, they are compared in ``tests/gpu``."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.checkout import run_python
from tests.perf.kernels.depthwise_cases import SMALL, TALL, Case


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed here")
def test_the_kernels_are_the_definition() -> None:
    done = run_python("-m", "tests.perf.kernels.interpreted_depthwise")
    assert done.returncode == 0, done.stderr
    expected = [f"short walks {name(case)} right" for case in SMALL]
    expected += [f"gradient of the {one} {name(SMALL[0])} right" for one in ("input", "weight")]
    expected += [f"long walks {name(case)} right" for case in TALL]
    assert done.stdout.splitlines() == expected


def name(case: Case) -> str:
    """Shape as the program prints it."""
    return " ".join(map(str, case[0]))
