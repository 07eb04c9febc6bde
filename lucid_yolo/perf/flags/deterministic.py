"""``deterministic``: whether equal runs give equal bits."""

from __future__ import annotations

from lucid_yolo.perf.flag import Choice, Flag
from lucid_yolo.perf.rules import Facts


def _choose(facts: Facts) -> Choice:
    if not facts.config.trainer.deterministic:
        return Choice(value="off")
    if facts.machine.accelerator == "mps":
        return Choice(value="warn-only", reason="some operations have no deterministic version on MPS")
    return Choice(value="strict", reason="an operation without a deterministic version is an error")


FLAGS = (
    Flag(
        key="deterministic",
        option="trainer.deterministic=true|false",
        summary="Deterministic algorithms only: strict on CPU and CUDA, warn-only on MPS.",
        requested=lambda facts: facts.config.trainer.deterministic,
        choose=_choose,
        fallback="off",
    ),
)
