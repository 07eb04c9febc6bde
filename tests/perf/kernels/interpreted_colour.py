"""Compares the colour kernel in Triton's interpreter with the workers; run as a script, it prints what it compared.

A process of its own, as `tests.perf.kernels.interpreter` says.
"""

from __future__ import annotations

import tests.perf.kernels.interpreter  # noqa: F401 # isort: skip - before the kernels

import torch

from lucid_yolo.perf.kernels import colour as kernels
from lucid_yolo.perf.kernels.colour import colour_and_scale
from tests.ops.colours import GAINS, as_batch, from_workers, spread_colours


def main() -> None:
    kernels._BLOCK = 2**14  # the interpreter's time goes by blocks, not by their size
    for levels, dtype in ((44, torch.float32), (17, torch.float16)):  # sizes that are no multiple of a block
        images, gains = as_batch(spread_colours(levels), GAINS)
        found = colour_and_scale(images, gains, dtype=dtype)
        assert found.is_contiguous(memory_format=torch.channels_last)
        wrong = int((found != from_workers(images, gains).to(dtype)).sum())
        print(f"{dtype}: {found.numel()} values, {wrong} differ")


if __name__ == "__main__":
    main()
