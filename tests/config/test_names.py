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


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("bf16", ("bf16-mixed",)),  # of two that hold it the one that begins with it
        ("32", ("32-true",)),
        ("true", ("32-true",)),
        ("e", ()),  # in nearly every name
        ("ue", ()),
        ("", ()),
    ],
)
def test_a_shortened_name_finds_the_whole_one(written: str, meant: tuple[str, ...]) -> None:
    options = ["auto", "32-true", "bf16-mixed", "a-long-bf16"]
    assert nearest(written, options) == meant


def test_what_is_alike_comes_before_what_is_longer() -> None:
    assert nearest("step", ["steps", "max_steps_of_a_fit"]) == ("steps",)
    assert nearest("conf", ["checkpoint", "confidence", "source"]) == ("confidence",)
    assert nearest("augm", ["data.augment", "data.augment.mosaic", "seed"]) == ("data.augment",)


def test_words() -> None:
    assert did_you_mean("modle", ["model", "data"]) == " Did you mean 'model'?"
    assert did_you_mean("zzz", ["model", "data"]) == ""
