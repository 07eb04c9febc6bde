"""The fused colour kernel in Triton's interpreter; compiled, it is compared in ``tests/gpu``."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.checkout import run_python


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed here")
def test_the_kernel_equals_the_workers():
    done = run_python("-m", "tests.perf.kernels.interpreted_colour")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"torch.float32: {6 * 3 * 44**3} values, 0 differ",
        f"torch.float16: {6 * 3 * 17**3} values, 0 differ",
    ]
