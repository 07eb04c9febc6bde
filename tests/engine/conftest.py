"""The tiny run as a fixture, what all such runs share, and plans that are told otherwise."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from lucid_yolo.engine import fit, resolve
from lucid_yolo.engine.prepare import Prepared, prepare
from lucid_yolo.nn.complexity import Complexity
from tests.engine.tiny import THREE_EPOCHS, TWO_EPOCHS, VERB, learn, tiny_config


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., DictConfig]:
    """Compose a tiny run in a directory of its own."""

    def compose(*overrides: str, run: str = "run") -> Any:
        return tiny_config(tmp_path / run, *overrides)

    return compose


@pytest.fixture(scope="session", autouse=True)
def counted_once() -> Iterator[None]:
    """What each run counts anew although the tiny runs are alike: rows of the same labels, the size of a network."""
    rows: dict[bytes, int] = {}
    sizes: dict[Any, Complexity] = {}
    count_rows, count_size = resolve.target_rows, fit.count

    def rows_once(*arguments: Any) -> int:
        key = pickle.dumps(arguments)
        if key not in rows:
            rows[key] = count_rows(*arguments)
        return rows[key]

    def size_once(model: Any, image_size: int) -> Complexity:
        shapes = tuple((name, tuple(value.shape)) for name, value in model.state_dict().items())
        key = type(model), shapes, image_size
        if key not in sizes:
            sizes[key] = count_size(model, image_size)
        return sizes[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resolve, "target_rows", rows_once)
        patch.setattr(fit, "count", size_once)
        yield


@pytest.fixture(scope="session")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Runs of two short epochs without any flag, each made once; whoever asks leaves them as they are."""
    return cache(
        lambda *changes: learn(tiny_config(tmp_path_factory.mktemp("plain") / "run", *TWO_EPOCHS, *changes)).run_dir
    )


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three epochs, with its report, that nothing stopped; whoever asks leaves it as it is."""
    result = VERB.train(tiny_config(tmp_path_factory.mktemp("whole") / "run", *THREE_EPOCHS))
    assert result.status == "finished"
    return result.run_dir


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

        monkeypatch.setattr(VERB, "prepare", prepare_otherwise)

    return change
