"""``capture=auto``: a trial on the run's own workload picks what to record."""

from __future__ import annotations

from lucid_yolo.config.regions import AUTO
from lucid_yolo.perf.flag import Choice, Flag
from lucid_yolo.perf.rules import Facts, goes_alone, needs_cuda


def is_selected(facts: Facts) -> bool:
    """Whether the configuration asks for it."""
    return facts.config.capture.auto.selected


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
            goes_alone(AUTO),
            needs_cuda(
                "capture.auto.needs-cuda",
                asked=is_selected,
                claim="capture=auto picks among recordings of CUDA graphs",
                otherwise=": there is nothing to pick",
            ),
        ),
    ),
)
