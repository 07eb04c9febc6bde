"""What a real fit has built is stock, and a user's callback that changes it is found before the first step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lightning as L
import pytest
from torch import nn

from lucid_yolo.engine.module import TrainingModule
from lucid_yolo.engine.step_parts import built
from lucid_yolo.perf.live import LiveFacts
from lucid_yolo.perf.setup import describe
from tests.engine.tiny import learn, tiny_config


class Look(L.Callback):
    """Describes the fit when everything is built."""

    def __init__(self, change: Callable[[nn.Module], object]) -> None:
        self.change = change
        self.found: LiveFacts | None = None

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        assert isinstance(pl_module, TrainingModule)
        self.change(pl_module.model)
        self.found = describe(built(pl_module.config, trainer, pl_module))


@pytest.mark.parametrize(
    ("change", "frozen"),
    [(lambda model: None, ()), (lambda model: model.backbone.requires_grad_(False), ("backbone",))],
    ids=["stock", "frozen backbone"],
)
def test_what_a_fit_has_built(change: Callable[[nn.Module], object], frozen: tuple[str, ...], tmp_path: Path) -> None:
    look = Look(change)
    learn(tiny_config(tmp_path / "run", "trainer.max_steps=1", "data.recipe.epochs=1"), [look])
    assert look.found is not None
    assert look.found.network.frozen == frozen
    assert (look.found == LiveFacts()) == (not frozen)
