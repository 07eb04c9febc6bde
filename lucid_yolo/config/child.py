"""Child processes that run this very package."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path


def child_environment() -> dict[str, str]:
    """Environment in which a child imports this very package, also from a checkout that is not installed."""
    parent = str(Path(__file__).resolve().parents[2])
    if parent in sysconfig.get_paths().values():
        return dict(os.environ)
    paths = [parent, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
