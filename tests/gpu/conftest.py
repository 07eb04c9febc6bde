"""Runs of a few seconds on a CUDA device, and its strict arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import lucid_yolo as ly
from lucid_yolo.engine.environment import numeric_settings

SMALL = [
    "data=shapes",
    "data.options.num_train=40",
    "data.options.num_val=8",
    "data.num_workers=2",
    "data.batch_size=4",
    "data.augment.mosaic=1.0",
    "data.augment.close_mosaic=1",
    "data.recipe.epochs=3",
    "data.recipe.val_every=1",
    "logger.tensorboard=false",
    "logger.pictures=false",
]
Compose = Callable[..., Any]


def composing(common: Sequence[str], folder: Path) -> Compose:
    """Compose runs that have overrides and a folder in common."""

    def make(*overrides: str, run: str = "run") -> Any:
        return ly.compose([*common, f"run_dir='{folder / run}'", *overrides])

    return make


@pytest.fixture
def small(tmp_path: Path) -> Compose:
    return composing(SMALL, tmp_path)


@pytest.fixture
def deterministic() -> Iterator[None]:
    with numeric_settings(deterministic="strict", cuda=True):
        yield
