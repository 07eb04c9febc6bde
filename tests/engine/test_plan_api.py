"""What Python users meet: lists of overrides, and reports that print as tables."""

from __future__ import annotations

from pathlib import Path

import lightning as L
import pytest

import lucid_yolo as ly
from lucid_yolo.config.errors import ConfigError, RunError
from tests.engine.tiny import SHORT, tiny_overrides


def test_a_list_of_overrides_is_a_configuration(tmp_path: Path) -> None:
    overrides = tiny_overrides(*SHORT, f"run_dir='{tmp_path / 'run'}'")
    assert ly.plan(overrides).plan.rows == ly.plan(ly.compose(overrides)).plan.rows
    assert ly.train(overrides).status == "finished"
    with pytest.raises(ConfigError, match="Did you mean 'seed'"):
        ly.plan(["sed=1"])


def test_a_plan_prints_as_a_table() -> None:
    text = str(ly.plan(tiny_overrides()))
    assert "capture.network" in text
    assert "PlanRow(" not in text


def test_a_warm_up_that_takes_most_of_the_run_is_a_note() -> None:
    def notes(*changes: str) -> str:
        return " ".join(ly.plan(tiny_overrides(*changes)).plan.notes)

    assert "warmup_epochs=3 of trainer.max_epochs=4" in notes("data.recipe.epochs=4")
    assert "warmup" not in notes("data.recipe.epochs=6")


@pytest.mark.parametrize(
    "error", [RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: not enough"), MemoryError()]
)
def test_no_memory_is_one_sentence(tmp_path: Path, error: Exception) -> None:
    class Full(L.Callback):
        def on_train_batch_start(self, *_: object) -> None:
            raise error

    with pytest.raises(RunError, match=r"The machine ran out of memory at data\.batch_size=4 .*set data\.batch_size=2"):
        ly.train(tiny_overrides(f"run_dir='{tmp_path / 'run'}'"), callbacks=[Full()])
