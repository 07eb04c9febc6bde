"""The tiny run as a fixture, and plans that are told otherwise."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

import lucid_yolo as ly
from lucid_yolo.engine.prepare import Prepared, prepare
from tests.engine.tiny import tiny_overrides


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., DictConfig]:
    """Compose a tiny run in a directory of its own."""

    def compose(*overrides: str, run: str = "run") -> Any:
        return ly.compose(tiny_overrides(f"run_dir='{tmp_path / run}'", *overrides))

    return compose


@pytest.fixture
def activate(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make rows of the plan active whatever the machine is, after the plan was made: ``activate(hsv="device")``."""

    def change(**active: object) -> None:
        def prepare_otherwise(root: Any) -> Prepared:
            prepared = prepare(root)
            rows = tuple(
                replace(row, active=active.get(row.key.replace(".", "_"), row.active), rule_id=None, reason="")
                for row in prepared.plan.rows
            )
            return replace(prepared, plan=replace(prepared.plan, rows=rows))

        monkeypatch.setattr(importlib.import_module("lucid_yolo.engine.train"), "prepare", prepare_otherwise)

    return change
