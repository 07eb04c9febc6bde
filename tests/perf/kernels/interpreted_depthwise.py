"""Run as a program: compares the kernels for depthwise convolutions with their definition, in Triton's interpreter."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined

from lucid_yolo.perf.kernels.depthwise import depthwise
from tests.perf.kernels.depthwise_cases import SMALL, bound, errors

for case in SMALL:
    found = errors(depthwise, case, "cpu")
    print(*case[0], "right" if max(found) < bound(case[1]) else f"errors {found}")
