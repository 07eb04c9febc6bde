"""``prefetch``: whether workers go on to the next epoch while this one ends and is validated."""

from __future__ import annotations

from lucid_yolo.config.schema import PrefetchName
from lucid_yolo.perf.flag import Choice, Flag
from lucid_yolo.perf.rules import Facts, Kind, Rule, Stage, needs_cuda


def _is_selected(facts: Facts) -> bool:
    return facts.config.prefetch.selected is PrefetchName.EPOCH


def _chose_no_workers(facts: Facts) -> bool:
    assert facts.data is not None
    return facts.config.data.num_workers is None and facts.data.num_workers == 0


FLAGS = (
    Flag(
        key="prefetch",
        option="prefetch=none|epoch",
        summary="How far ahead the loader's workers prepare batches: to the end of the epoch, or on into the next one, "
        "so that its first batches are ready after validation.",
        requested=lambda facts: str(facts.config.prefetch.selected),
        choose=lambda facts: Choice(value=str(facts.config.prefetch.selected)),
        fallback="none",
        rules=(
            needs_cuda(
                "prefetch.needs-cuda",
                asked=_is_selected,
                claim="prefetch=epoch needs a CUDA device",
                otherwise=": there, workers would take validation's cores",
            ),
            Rule(
                id="prefetch.needs-workers",
                stage=Stage.CONFIG,
                kind=Kind.FALLBACK,
                applies=lambda facts: _is_selected(facts) and facts.config.data.num_workers == 0,
                sentence="prefetch=epoch needs worker processes, and data.num_workers=0 has none; set a number, or "
                "null to have one chosen",
            ),
            Rule(
                id="prefetch.has-workers",
                stage=Stage.DATA,
                kind=Kind.FALLBACK,
                applies=lambda facts: _is_selected(facts) and _chose_no_workers(facts),
                sentence="prefetch=epoch needs worker processes, and none was chosen for {machine.cores} cores and the "
                "free shared memory (/dev/shm); data.num_workers=1 asks for one",
            ),
            Rule(
                id="prefetch.whole-epochs",
                stage=Stage.CONFIG,
                kind=Kind.FALLBACK,
                applies=lambda facts: _is_selected(facts) and facts.config.trainer.max_steps is not None,
                sentence="prefetch=epoch needs whole epochs, and trainer.max_steps={config.trainer.max_steps} may end "
                "inside one; trainer.max_steps=null does not",
            ),
            Rule(
                id="prefetch.second-epoch",
                stage=Stage.CONFIG,
                kind=Kind.FALLBACK,
                applies=lambda facts: _is_selected(facts) and facts.config.trainer.max_epochs == 1,
                sentence="prefetch=epoch prepares the next epoch, and with trainer.max_epochs=1 there is none",
            ),
        ),
    ),
)
