"""The checkout as tests see it: where it is, and how to run things in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


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
