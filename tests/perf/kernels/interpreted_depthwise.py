"""Run as a program: compares the kernels for depthwise convolutions with their definition, in Triton's interpreter."""

from __future__ import annotations

import tests.perf.kernels.interpreter  # noqa: F401 # isort: skip - before the kernels

from collections.abc import Sequence
from dataclasses import replace

from lucid_yolo.perf.kernels import depthwise as kernels
from lucid_yolo.perf.kernels.walks import Windows
from tests.perf.kernels.depthwise_cases import SMALL, TALL, Case, bound, errors


def long_walks(windows: Windows) -> Windows:
    """Windows that walk down whole pictures, as they do where there are many."""
    return Windows(aligned=replace(windows.aligned, programs=1), other=replace(windows.other, programs=1))


def report(case: Case, label: str, wanted: Sequence[int] = (0, 1)) -> None:
    """Print what there is of errors."""
    found = errors(kernels.depthwise, case, "cpu", wanted=wanted)
    print(label, *case[0], "right" if max(found) < bound(case[1]) else f"errors {found}")


def main() -> None:
    # The interpreter's time goes by programs: fewer of them add up more numbers each, of few walks at a time.
    kernels.SUM = replace(kernels.SUM, shares=4, numbers=256)
    for case in SMALL:
        report(case, "short walks")
    report(SMALL[0], "gradient of the input", wanted=(0,))
    report(SMALL[0], "gradient of the weight", wanted=(1,))
    kernels.FILTER, kernels.GRADIENT = long_walks(kernels.FILTER), long_walks(kernels.GRADIENT)
    for case in TALL:
        report(case, "long walks")


if __name__ == "__main__":
    main()
