"""The tiny run as a fixture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

import lucid_yolo as ly
from tests.engine.tiny import tiny_overrides


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., DictConfig]:
    """Compose a tiny run in a directory of its own."""

    def compose(*overrides: str, run: str = "run") -> Any:
        return ly.compose(tiny_overrides(f"run_dir='{tmp_path / run}'", *overrides))

    return compose
