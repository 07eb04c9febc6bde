"""The table of ranges covers the schema, and each row draws its line where it says."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest

from lucid_yolo.config.ranges import ACCELERATORS, RANGES, TEXTS, Range, range_problem
from lucid_yolo.config.schema import KINDS, RootConfig
from lucid_yolo.config.verbs import CompareConfig, PredictConfig, ProfileConfig, ValidateConfig


def numbers(kind: type, prefix: str = "") -> Iterator[str]:
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        key, hint = f"{prefix}{field.name}", hints[field.name]
        if key in KINDS:
            for option in KINDS[key].values():
                yield from numbers(option, f"{key}.")
        elif dataclasses.is_dataclass(hint):
            yield from numbers(hint, f"{key}.")
        elif {int, float} & ({hint} | set(getattr(hint, "__args__", ()))):
            yield key


VERBS = (ValidateConfig, PredictConfig, CompareConfig, ProfileConfig)
SCHEMA_NUMBERS = {*numbers(RootConfig), *(key for verb in VERBS for key in numbers(verb))}


def test_every_number_of_the_schema_has_a_range_and_every_range_a_number() -> None:
    assert set(RANGES) == SCHEMA_NUMBERS
    assert len(RANGES) == 95


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("data.image_size", [32, 640], [0, -32, 33, 650]),
        ("data.batch_size", [1, 64], [0, -1]),
        ("data.num_workers", [0, 8, None], [-1]),
        ("data.augment.mosaic", [0, 0.5, 1], [-0.1, 1.1]),
        ("data.augment.scale", [0, 0.9], [1, -0.1]),
        ("trainer.max_epochs", [1], [0]),
        ("trainer.val_every", [1], [0]),
        ("trainer.accumulate", [1], [0]),
        ("trainer.clip_norm", [10.0, 0, -1, None], [float("inf"), float("nan")]),
        ("trainer.save_seconds", [0, 0.5, 600], [-1, float("inf")]),
        ("optimizer.lr", [1e-6, 1], [0, -1, float("nan"), float("inf")]),
        ("optimizer.momentum", [0, 0.95], [1, -0.1]),
        ("seed", [0, 2**32 - 1], [-1, 2**32]),
        ("confidence", [0, 0.25, 1], [1.01, -0.01]),
        ("tile", [32, 1000, None], [31, 0, -1]),
        ("overlap", [0, 200], [-1]),
        ("trainer.accelerator", list(ACCELERATORS), ["gpu", ""]),
    ],
)
def test_lines(key: str, good: list[Any], bad: list[Any]) -> None:
    assert [range_problem(key, value) for value in good] == [None] * len(good)
    assert all(range_problem(key, value) for value in bad)


def test_words() -> None:
    assert str(Range(low=0, high=1, open_high=True)) == "at least 0 and less than 1"
    assert str(RANGES["data.image_size"]) == "at least 32 and a multiple of 32"
    assert range_problem("optimizer.lr", 0) == "0 is out of range, it must be greater than 0"
    assert range_problem("no.such.key", -5) is None
    assert set(TEXTS) == {"trainer.accelerator", "accelerator"}
