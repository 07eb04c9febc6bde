"""A run that takes seconds: a few small drawn pictures, a few steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

import lucid_yolo as ly

TINY = [
    "data=shapes",
    "data.options.num_train=14",
    "data.options.num_val=6",
    "data.options.image_size=96",
    "data.image_size=96",
    "data.batch_size=4",
    "data.num_workers=0",
    "data.augment.mosaic=0.5",
    "data.augment.close_mosaic=1",
    "data.recipe.epochs=4",
    "data.recipe.val_every=4",
    "trainer.accelerator=cpu",
    "trainer.log_every=3",
    "logger.pictures=false",
    "logger.tensorboard=false",
]


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., DictConfig]:
    """Compose a tiny run in a directory of its own."""

    def compose(*overrides: str, run: str = "run") -> Any:
        return ly.compose([*TINY, f"run_dir='{tmp_path / run}'", *overrides])

    return compose
