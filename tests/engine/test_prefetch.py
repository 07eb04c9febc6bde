"""Runs that prepare the next epoch ahead: the weights of a run that does not, also when it is continued.

On a processor the plan switches it off; here it is told otherwise, after it was made.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lucid_yolo as ly
from lucid_yolo.engine.train import train
from tests.engine.test_train import STEPS_AN_EPOCH, PressCtrlC, assert_equal, read_state
from tests.engine.tiny import tiny_overrides

RECIPE = ("trainer.max_epochs=3", "data.num_workers=2", "data.augment.close_mosaic=1")


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    run_dir = tmp_path_factory.mktemp("plain") / "run"
    result = train(ly.compose(tiny_overrides(f"run_dir='{run_dir}'", *RECIPE)))
    assert result.plan["prefetch"].outcome == {}
    return run_dir


@pytest.mark.parametrize("stop_after", [None, STEPS_AN_EPOCH + 2, 2 * STEPS_AN_EPOCH], ids=["", "inside", "at the end"])
def test_a_run_learns_the_same(plain, tmp_path, activate, stop_after):
    activate(prefetch="epoch")
    run_dir = tmp_path / "run"
    stop = [] if stop_after is None else [PressCtrlC(after_step=stop_after)]
    result = train(ly.compose(tiny_overrides(f"run_dir='{run_dir}'", *RECIPE)), callbacks=stop)
    epochs = 2
    if stop_after is not None:
        assert result.status == "interrupted"
        result = train(ly.compose([f"resume='{run_dir}'"]))
        epochs = 1 if stop_after % STEPS_AN_EPOCH else 0
    assert result.status == "finished"
    first, second = read_state(plain), read_state(run_dir)
    for part in ("state_dict", "optimizer_states", "epoch", "global_step"):
        assert_equal(first[part], second[part], part)
    outcome = json.loads((run_dir / "summary.json").read_text())["plan"]["prefetch"]["outcome"]
    assert outcome == result.plan["prefetch"].outcome
    assert outcome["epochs"] == epochs
    assert ("first_batch_seconds" in outcome) == (epochs > 0)


def test_off_cuda_it_is_not_used_and_the_user_is_told(tmp_path):
    with pytest.warns(UserWarning, match=r"prefetch=epoch needs a CUDA device.*\[prefetch\.needs-cuda\]"):
        result = train(ly.compose(tiny_overrides(f"run_dir='{tmp_path / 'run'}'", *RECIPE, "prefetch=epoch")))
    assert (result.plan["prefetch"].active, result.plan["prefetch"].outcome) == ("none", {})
