"""The checkout as tests see it: where it is, and how to run things in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

TINY_RUN = (
    "data.options.num_train=14",
    "data.options.num_val=6",
    "data.options.image_size=96",
    "data.image_size=96",
    "data.batch_size=4",
    "data.num_workers=0",
    "trainer.accelerator=cpu",
    "trainer.max_epochs=1",
    "trainer.max_steps=2",
)
"""A training on drawn pictures that takes seconds."""


def run_python(
    *arguments: str | Path, cwd: Path = ROOT, path: Sequence[Path] = (), timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter and keep what it prints.

    Args:
        arguments: of the interpreter.
        cwd: directory to run in.
        path: folders to import from, before all others.
        timeout: seconds.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
