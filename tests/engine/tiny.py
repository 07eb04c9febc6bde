"""A run that takes a second or two: a few small drawn pictures, a few steps."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from omegaconf import OmegaConf

import lucid_yolo as ly
from lucid_yolo.config.compose import to_root
from lucid_yolo.config.schema import RootConfig
from lucid_yolo.engine.final import no_metrics
from lucid_yolo.engine.report import TrainResult

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
    "model.variant=tiny",  # as many layers as n, of a quarter of its width
    "model.width=0.0625",
    "trainer.accelerator=cpu",
    "trainer.log_every=3",
    "logger.pictures=false",
    "logger.tensorboard=false",
]
NANO = ("model.variant=n", "model.width=0.25")  # with the width of n
VERB = importlib.import_module("lucid_yolo.engine.train")  # the package's attribute of that name is the function
SHORT = ("trainer.max_epochs=1", "trainer.max_steps=2")  # where it matters only that it trains
# 2 steps an epoch, each epoch validated and saved.
TWO_EPOCHS = ("data.options.num_train=6", "data.recipe.epochs=2", "data.recipe.val_every=1")
# To be stopped and to go on: 10 pictures in batches of 4, the last one filled; the last epoch is without mosaic.
THREE_EPOCHS = ("data.options.num_train=10", "data.recipe.epochs=3", "data.recipe.val_every=3")
STEPS_AN_EPOCH = 3


def tiny_overrides(*changes: str) -> list[str]:
    """The tiny run with changes; a changed key stands once."""
    return list({line.partition("=")[0]: line for line in (*TINY, *changes)}.values())


def tiny_config(run_dir: Path, *changes: str) -> Any:
    """The tiny run in a directory of its own; the same changes are composed once."""
    config = copy.deepcopy(_composed(changes))
    config.run_dir = str(run_dir)
    config.overrides = [*config.overrides, f"run_dir='{run_dir}'"]
    return config


@cache
def _composed(changes: tuple[str, ...]) -> Any:
    return ly.compose(tiny_overrides(*changes))


def learn(config: Any, callbacks: Sequence[L.Callback] = ()) -> TrainResult:
    """Train without the last report, which scores the best checkpoint once more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VERB, "final_report", lambda prepared, *_: no_metrics(prepared.task))
        return VERB.train(config, callbacks=callbacks)


def resumed(run_dir: Path, **trainer: Any) -> RootConfig:
    """A run that goes on with other settings of its trainer; how ``resume=`` composes it is looked at elsewhere."""
    root = to_root(OmegaConf.load(run_dir / "config.yaml"))
    root.resume = root.run_dir = str(run_dir)
    for name, value in trainer.items():
        setattr(root.trainer, name, value)
    return root


def read_state(run_dir: Path) -> dict[str, Any]:
    """What ``last.ckpt`` holds."""
    return torch.load(run_dir / "checkpoints" / "last.ckpt", weights_only=True)
