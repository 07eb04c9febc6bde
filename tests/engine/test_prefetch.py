"""Runs that prepare the next epoch ahead: the weights of a run that does not, also when it is continued.

On a processor the plan switches it off; here it is told otherwise, after it was made.
"""

from __future__ import annotations

import json

import pytest

from tests.engine.signals import PressCtrlC
from tests.engine.test_train import assert_equal
from tests.engine.tiny import SHORT, STEPS_AN_EPOCH, THREE_EPOCHS, learn, read_state, resumed


@pytest.mark.parametrize("stop_after", [None, STEPS_AN_EPOCH + 1, 2 * STEPS_AN_EPOCH], ids=["", "inside", "at the end"])
def test_a_run_learns_the_same(uninterrupted, tiny, activate, stop_after):
    activate(prefetch="epoch")
    stop = [] if stop_after is None else [PressCtrlC(after_step=stop_after)]
    result = learn(tiny(*THREE_EPOCHS, "data.num_workers=2"), stop)
    run_dir = result.run_dir
    epochs = 2
    if stop_after is not None:
        assert result.status == "interrupted"
        result = learn(resumed(run_dir))
        epochs = 1 if stop_after % STEPS_AN_EPOCH else 0
    assert result.status == "finished"
    first, second = read_state(uninterrupted), read_state(run_dir)
    for part in ("state_dict", "optimizer_states", "epoch", "global_step"):
        assert_equal(first[part], second[part], part)
    plain, outcome = (
        json.loads((run / "summary.json").read_text())["plan"]["prefetch"]["outcome"]
        for run in (uninterrupted, run_dir)
    )
    assert plain == {}
    assert outcome == result.plan["prefetch"].outcome
    assert outcome["epochs"] == epochs
    assert ("first_batch_seconds" in outcome) == (epochs > 0)


def test_off_cuda_it_is_not_used_and_the_user_is_told(tiny):
    with pytest.warns(UserWarning, match=r"prefetch=epoch needs a CUDA device.*\[prefetch\.needs-cuda\]"):
        result = learn(tiny(*SHORT, "data.num_workers=2", "prefetch=epoch"))
    assert (result.plan["prefetch"].active, result.plan["prefetch"].outcome) == ("none", {})
