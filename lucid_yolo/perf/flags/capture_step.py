"""``capture=step``: the whole training step as one CUDA graph.

Whatever the host does inside the step (hooks, replaced methods, callbacks between forward pass and update) would not
happen in a replay; the rules of stage ``setup`` look for it.
"""

from __future__ import annotations

from lucid_yolo.config.regions import STEP
from lucid_yolo.config.schema import PrecisionName
from lucid_yolo.perf.flag import Choice, Flag
from lucid_yolo.perf.flags.capture import setup_rule
from lucid_yolo.perf.flags.precision import active_precision
from lucid_yolo.perf.rules import Facts, Kind, Rule, Stage, goes_alone, needs_cuda


def is_selected(facts: Facts) -> bool:
    """Whether the configuration asks for it."""
    return facts.config.capture.step.selected


FLAGS = (
    Flag(
        key="capture.step",
        option="capture=step",
        summary="Replays the whole step, from the batch to the averaged weights, as one graph.",
        requested=is_selected,
        choose=lambda facts: Choice(value=is_selected(facts)),
        fallback=False,
        rules=(
            goes_alone(STEP),
            Rule(
                id="capture.step.no-accumulation",
                stage=Stage.CONFIG,
                kind=Kind.REFUSE,
                applies=lambda facts: is_selected(facts) and facts.config.trainer.accumulate > 1,
                sentence="capture=step records a batch with its update, and trainer.accumulate="
                "{config.trainer.accumulate} makes an update of several batches; set trainer.accumulate=1 and a larger "
                "data.batch_size, or record parts of the step, such as capture=network+loss",
            ),
            needs_cuda("capture.step.needs-cuda", asked=is_selected, claim="capture=step records a CUDA graph"),
            Rule(
                id="capture.step.no-scaler",
                stage=Stage.MACHINE,
                kind=Kind.FALLBACK,
                applies=lambda facts: is_selected(facts) and active_precision(facts) == PrecisionName.FP16,
                sentence="capture=step has no place for the loss scaler of precision=16-mixed, which reads the device "
                "in each step; precision=bf16-mixed needs none",
            ),
            setup_rule(
                STEP,
                "own-forward",
                lambda live: live.network.own_forward + live.loss.own_forward,
                "records the forward of the classes, and it was replaced or compiled on {found}",
            ),
            setup_rule(
                STEP,
                "hooks",
                lambda live: live.network.hooked + live.loss.hooked,
                "would replay without calling hooks, and there are some on {found}; remove them",
            ),
            setup_rule(
                STEP,
                "stock-loss",
                lambda live: () if live.loss_is_stock else (live.loss_class,),
                "records the loss that the task makes, and this one is of class {found}",
            ),
            setup_rule(
                STEP,
                "stock-optimizer",
                lambda live: () if live.optimizer_is_ours else (live.optimizer_class,),
                "records the update of one of the project's optimizers, this one is of class {found}",
            ),
            setup_rule(
                STEP,
                "own-step",
                lambda live: live.own_steps,
                "records the methods of the optimizer's class, and these were replaced on it: {found}",
            ),
            setup_rule(
                STEP,
                "optimizer-hooks",
                lambda live: live.optimizer_hooks,
                "would replay without calling {found}; remove them",
            ),
            setup_rule(
                STEP,
                "own-hooks",
                lambda live: live.hooks_in_step,
                "would replay without calling what lies between forward pass and update: {found}; "
                "on_train_batch_start and on_train_batch_end are called",
            ),
            setup_rule(
                STEP,
                "optimizer-parameters",
                lambda live: live.optimizer_misfits,
                "needs parameters that are dense float32 tensors of the device, and found {found}",
            ),
        ),
    ),
)
