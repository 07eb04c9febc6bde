"""The nearest name is the one that a person would pick."""

from __future__ import annotations

import pytest

from lucid_yolo.config.compose import compose
from lucid_yolo.config.keys import all_keys
from lucid_yolo.config.names import did_you_mean, nearest

KEYS = all_keys(compose())


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("lr", "optimizer.lr"),
        ("learning_rate", None),
        ("epochs", "data.recipe.epochs"),
        ("max_epochs", "trainer.max_epochs"),
        ("batch_size", "data.batch_size"),
        ("data.batchsize", "data.batch_size"),
        ("trainer.ema.dacay", "trainer.ema.decay"),
        ("data.mosaic", "data.augment.mosaic"),
        ("optimiser.lr", "optimizer.lr"),
        ("rundir", "run_dir"),
        ("zzzz", None),
    ],
)
def test_nearest_key(written: str, meant: str | None) -> None:
    assert (nearest(written, KEYS) or (None,))[0] == meant


def test_words() -> None:
    assert did_you_mean("modle", ["model", "data"]) == " Did you mean 'model'?"
    assert did_you_mean("zzz", ["model", "data"]) == ""
