"""``capture=auto``: a trial on the run's own workload picks what to record."""

from __future__ import annotations

from lucid_yolo.config.regions import AUTO, OPTIONS
from lucid_yolo.perf.flag import Choice, Flag
from lucid_yolo.perf.rules import Facts, Kind, Rule, Stage


def is_selected(facts: Facts) -> bool:
    """Whether the configuration asks for it."""
    return facts.config.capture.auto.selected


def selected_others(facts: Facts) -> tuple[str, ...]:
    """What the configuration asks for beside."""
    return tuple(name for name in OPTIONS if name != AUTO and getattr(facts.config.capture, name).selected)


def _choose(facts: Facts) -> Choice:
    asked = is_selected(facts)
    return Choice(value=asked, reason="not measured yet: a trial before the first step picks" if asked else "")


FLAGS = (
    Flag(
        key="capture.auto",
        option="capture=auto",
        summary="Times what can be recorded in a short trial of this very run, and takes what pays.",
        requested=is_selected,
        choose=_choose,
        fallback=False,
        rules=(
            Rule(
                id="capture.auto.alone",
                stage=Stage.CONFIG,
                kind=Kind.REFUSE,
                applies=lambda facts: is_selected(facts) and bool(selected_others(facts)),
                sentence="capture=auto finds out whether to select {others}; write one or the other",
                words=lambda facts: {"others": "+".join(selected_others(facts))},
            ),
            Rule(
                id="capture.auto.needs-cuda",
                stage=Stage.MACHINE,
                kind=Kind.FALLBACK,
                applies=lambda facts: is_selected(facts) and facts.machine.accelerator != "cuda",
                sentence="capture=auto picks among recordings of CUDA graphs, and this run computes on "
                "{machine.accelerator} ({machine.accelerator_reason}): there is nothing to pick",
            ),
        ),
    ),
)
