"""The whole step as one recording inside Lightning's loop, without CUDA: on a tape that repeats its operators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import pytest

from lucid_yolo.engine.module import TrainingModule
from lucid_yolo.engine.step_parts import StepParts
from tests.engine.test_step_parts import assert_same, parts_for, run
from tests.engine.tiny import read_state
from tests.perf.capture.tapes import OperatorTape

STEPS = ("data.options.num_train=14", "trainer.max_steps=3")  # 3 of 4 steps of an epoch


def outcome(parts: StepParts) -> dict[str, Any]:
    return dict(parts.outcomes()["capture.step"])


@pytest.mark.parametrize("task", ["detect", "segment", "keypoints", "obb"])
def test_a_run_of_one_graph_a_step_equals_the_eager_one(
    tmp_path: Path, task: str, plain_run: Callable[..., Path]
) -> None:
    changes = () if task == "detect" else (f"task={task}",)
    parts = parts_for("capture=step", *changes, tape=OperatorTape())
    recorded, expected = run(tmp_path, "recorded", *changes, callbacks=[parts]), read_state(plain_run(*changes))
    assert_same(recorded, expected)
    found = outcome(parts)
    assert (found["recordings"], found["replays"], found["native_calls"]) == (1, 4, 0)
    assert recorded["global_step"] == expected["global_step"] == 4  # validated and saved in between


class LossOfNaN(L.Callback):
    """The second step has no finite loss: its update must not be made."""

    module: TrainingModule

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        assert isinstance(pl_module, TrainingModule)
        self.module = pl_module
        self.alpha = pl_module.loss.alpha.clone()
        if trainer.global_step == 1:
            pl_module.loss.alpha.fill_(float("nan"))

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        pl_module.loss.alpha.copy_(self.alpha)
        if trainer.global_step == 2:
            pl_module.step_log.read()  # else the run would end at its next reading, as it should
            pl_module.gradients_finite()


def test_an_update_is_skipped_in_a_replay_as_in_an_eager_step(tmp_path: Path) -> None:
    eager = run(tmp_path, "eager", *STEPS, callbacks=[LossOfNaN()])
    parts = parts_for("capture=step", *STEPS, tape=OperatorTape())
    watch = LossOfNaN()
    recorded = run(tmp_path, "recorded", *STEPS, callbacks=[watch, parts])
    assert_same(recorded, eager)
    assert watch.module.step.__func__ is TrainingModule.compute_losses  # the fit is over
    assert int(eager["state_dict"]["ema.updates"]) == 2
    assert outcome(parts)["replays"] == 3


def test_a_callback_between_forward_pass_and_update_makes_it_fall_back_by_name(tmp_path: Path) -> None:
    class Clips(L.Callback):
        seen = 0

        def on_after_backward(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
            self.seen += 1

    clips, parts = Clips(), parts_for("capture=step", *STEPS, tape=OperatorTape())
    with pytest.warns(UserWarning, match=r"without calling .*Clips\.on_after_backward"):
        run(tmp_path, "run", *STEPS, callbacks=[clips, parts])
    assert (clips.seen, parts.plan["capture.step"].active, parts.outcomes()) == (3, False, {})
