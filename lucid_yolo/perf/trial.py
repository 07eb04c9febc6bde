"""What a trial of recordings found, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from rich.table import Table

from lucid_yolo.config.regions import NONE

LEAST_GAIN = 0.03  # of a step; less is noise
MEMORY_SHARE = 0.9  # of the device that a candidate may reserve


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One candidate.

    Attributes:
        option: of ``capture``.
        step_ms: median time from step to step, waiting for data included; None where it was not measured.
        wait_ms: the part of it that the step waited for data.
        setup_seconds: what its recordings took.
        reserved_mib: memory that was reserved on the device at most.
        error: why it was not measured; else empty.
    """

    option: str
    step_ms: float | None = None
    wait_ms: float = 0.0
    setup_seconds: float = 0.0
    reserved_mib: float = 0.0
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain containers."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of ``as_dict``."""
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """What a trial decides.

    Attributes:
        option: of ``capture``.
        reason: a sentence with the numbers.
        verdicts: what was found about each candidate, in their order.
    """

    option: str
    reason: str
    verdicts: tuple[str, ...]


def pick(trials: Sequence[Trial], *, steps: int, memory_mib: float) -> Pick:
    """Choose the candidate with which the whole run is over first, its set-up included.

    Args:
        trials: the first is the eager step.
        steps: that the run will make.
        memory_mib: of the device.
    """
    eager = trials[0]
    if eager.step_ms is None:
        reason = f"nothing is recorded: the step without recordings could not be timed ({eager.error})"
        return Pick(option=NONE, reason=reason, verdicts=tuple(trial.error or "not compared" for trial in trials))
    verdicts, fit = ["what the others are compared with"], {NONE: eager.step_ms * steps}
    for trial in trials[1:]:
        verdict = _judge(trial, eager.step_ms, steps=steps, memory_mib=memory_mib)
        verdicts.append(verdict)
        if trial.step_ms is not None and verdict.startswith(REPAID):
            fit[trial.option] = trial.step_ms * steps + 1000 * trial.setup_seconds
    option = min(fit, key=lambda name: fit[name])
    if option == NONE:
        reason = f"nothing is recorded: no candidate is faster than the eager step of {eager.step_ms:.1f} ms and repaid"
    else:
        chosen = next(trial for trial in trials if trial.option == option)
        assert chosen.step_ms is not None
        saved = 1 - fit[option] / fit[NONE]
        reason = (
            f"picked {option}: {chosen.step_ms:.1f} ms a step instead of {eager.step_ms:.1f}, which saves "
            f"{100 * saved:.0f} % of the {steps} steps of this run, set-up included"
        )
    return Pick(option=option, reason=reason, verdicts=tuple(verdicts))


REPAID = "repaid"


def _judge(trial: Trial, eager_ms: float, *, steps: int, memory_mib: float) -> str:
    if trial.step_ms is None:
        return trial.error
    if trial.reserved_mib > MEMORY_SHARE * memory_mib:
        return f"takes more than {100 * MEMORY_SHARE:.0f} % of the {memory_mib:.0f} MiB of the device"
    gain_ms = eager_ms - trial.step_ms
    if gain_ms < LEAST_GAIN * eager_ms:
        return f"not faster by {100 * LEAST_GAIN:.0f} % or more"
    after = 1000 * trial.setup_seconds / gain_ms
    return f"{REPAID} after {after:.0f} steps" if after < steps else f"would be repaid after {after:.0f} steps only"


def table_of(trials: Sequence[Trial], picked: Pick) -> Table:
    """What was measured and decided, for the terminal."""
    table = Table(title="Trial of recordings", title_justify="left", caption=picked.reason, caption_justify="left")
    for column in ("capture", "step, ms", "of it waiting", "set-up, s", "reserved, MiB", ""):
        table.add_column(column, justify="left" if column in ("capture", "") else "right", overflow="fold")
    for trial, verdict in zip(trials, picked.verdicts, strict=True):
        numbers = ("", "", "", "")
        if trial.step_ms is not None:
            numbers = (
                f"{trial.step_ms:.1f}",
                f"{trial.wait_ms:.1f}",
                f"{trial.setup_seconds:.1f}",
                f"{trial.reserved_mib:.0f}",
            )
        table.add_row(trial.option, *numbers, verdict, style="bold" if trial.option == picked.option else None)
    return table
