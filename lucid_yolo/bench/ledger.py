"""The ledger: what each flag gains on its documented workload, and the rule that keeps or retires it.

One file of data. It is filled by ``lucid_yolo.bench.book`` from reports of comparisons, never by hand; the newest entry
of a workload, arm, device and torch version stands, the older ones are its history.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from lucid_yolo.bench.paired import PairedRatio, Verdict
from lucid_yolo.bench.record import write_record
from lucid_yolo.bench.step_profile import StepProfile
from lucid_yolo.config.errors import RunError
from lucid_yolo.config.workloads import Mark, ParityState

GAIN_PERCENT = 3.0  # a flag that saves less on its documented workload is a candidate for retirement
REMOVED_PERCENT = 80.0  # unless it records a part that eager has made lean, and removes so much of its host time
VERSION = "lucid-yolo-lab"


@dataclass(frozen=True, slots=True)
class Parity:
    """What is known about a flag's parity.

    Attributes:
        state: of its tests.
        test: which, and where they ran.
        red_since: version of the project that was first booked as red; None while it is not.
    """

    state: ParityState = ParityState.UNKNOWN
    test: str = ""
    red_since: str | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the step that eager has made small already: recording it cannot gain much of a fit.

    Attributes:
        part: of the step or of the optimizer, or several joined by ``+``.
        percent: of the eager step's host time.
        removed_percent: of that time, with the flag.
    """

    part: str
    percent: float
    removed_percent: float

    @classmethod
    def of(cls, part: str, eager: StepProfile, flagged: StepProfile) -> Self:
        """Compare a part in two profiles, without the flag and with it.

        Raises:
            RunError: one of them has no such part, or they do not differ in their flags alone.
        """
        if (eager.data, eager.environment) != (flagged.data, flagged.environment) or eager.flags == flagged.flags:
            raise RunError(
                f"The share of {part} is told by two profiles of the same data, machine and commit, the second with a "
                "flag that the first has not."
            )
        parts = part.split("+")
        counted = [name for one in parts for name in (one, *eager.host_parts(one))]
        if twice := sorted({name for name in parts if counted.count(name) > 1}):
            raise RunError(
                f"{part} counts {', '.join(twice)} twice: name each part once, and none beside the one that it lies in."
            )
        before, after = (sum(profile.host_time(name) for name in parts) for profile in (eager, flagged))
        if not before or not after:
            raise RunError(
                f"{part} was timed as nothing {'with' if before else 'without'} the flag, so no share of it is known. "
                "A step that is recorded as a whole has no time of its parts."
            )
        share = sum(eager.host_share(name) for name in parts)
        return cls(part, 100.0 * share, 100.0 * (1.0 - after / before))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One row: an arm on a workload, as it was measured.

    Attributes:
        workload: its name.
        arm: name of the arm.
        option: its overrides, as on the command line.
        mark: what the workload asks of a flag.
        compares: what the ratio is made of.
        pairs: ratios to the baseline, below 1 is faster; none where the arm was profiled and not timed.
        also: ratios of what the workload does not compare, by what they are made of, such as "step".
        setup_seconds: median; None where the flag has no set-up.
        break_even: epochs, or "never"; None where there is no set-up.
        baseline: medians of the baseline, by measure.
        medians: medians of the arm.
        batch: images a step.
        size: canvas in pixels.
        precision: arithmetic.
        deterministic: setting.
        device: name.
        driver: version; None where there is none.
        versions: of what computes.
        commit: of the project.
        cores: of the machine.
        date: of the report.
        parity: of the flag.
        share: where the flag records a part that eager has made small.
    """

    workload: str
    arm: str
    option: str
    mark: Mark | None
    compares: str
    pairs: tuple[float, ...]
    also: Mapping[str, Sequence[float]]
    setup_seconds: float | None
    break_even: float | str | None
    baseline: Mapping[str, float | None]
    medians: Mapping[str, float | None]
    batch: int | None
    size: int | None
    precision: str
    deterministic: str
    device: str
    driver: str | None
    versions: Mapping[str, str]
    commit: str | None
    cores: int | None
    date: str
    parity: Parity = field(default_factory=Parity)
    share: Share | None = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What one standing entry there is of."""
        return self.workload, self.arm, self.device, self.versions["torch"]

    @property
    def measured_with(self) -> Mapping[str, Any]:
        """What was measured, and where: a share belongs to a ratio where all of it is the same."""
        names = ("option", "batch", "size", "precision", "deterministic", "device", "driver", "commit", "cores")
        return {**{name: getattr(self, name) for name in names}, **self.versions}

    def deviations(self, other: Entry) -> str:
        """In words what another one was measured with instead; empty where it is all the same."""
        mine, theirs = self.measured_with, other.measured_with
        return ", ".join(
            f"{name} {theirs.get(name)} instead of {mine.get(name)}"
            for name in {**mine, **theirs}
            if mine.get(name) != theirs.get(name)
        )

    @property
    def ratio(self) -> PairedRatio:
        """The pairs as a ratio."""
        return PairedRatio(self.pairs)

    def as_dict(self) -> dict[str, Any]:
        """Plain containers, median and spread among them for a reader."""
        if not self.pairs:
            return {**asdict(self), "pairs": [], "ratio": None}
        ratio, interval = self.ratio, self.ratio.interval
        summary = {
            "median": ratio.median,
            "min": ratio.low,
            "max": ratio.high,
            "coverage": interval.coverage,
            "saved_percent": ratio.saved_percent,
            "verdict": str(ratio.verdict),
        }
        return {**asdict(self), "pairs": list(self.pairs), "ratio": summary}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of ``as_dict``."""
        stored = {key: value for key, value in values.items() if key not in ("ratio", "history")}
        stored["pairs"] = tuple(stored["pairs"])
        stored["mark"] = None if stored["mark"] is None else Mark(stored["mark"])
        stored["parity"] = Parity(**{**stored["parity"], "state": ParityState(stored["parity"]["state"])})
        stored["share"] = None if stored["share"] is None else Share(**stored["share"])
        return cls(**stored)


@dataclass(frozen=True, slots=True)
class Row:
    """A standing entry and what it replaced, newest first."""

    entry: Entry
    history: tuple[Entry, ...] = ()


class State(StrEnum):
    """What the rule says about a flag; a person decides, never a program."""

    KEEP = "keep"
    CANDIDATE = "candidate for retirement"
    UNDECIDED = "undecided"
    UNMEASURED = "no measurement"


@dataclass(frozen=True, slots=True)
class Judgement:
    """State of a flag and why; the reason is empty where the state says it all."""

    state: State
    reason: str = ""


def judge(entry: Entry | None, *, version: str) -> Judgement:
    """Apply the rule that keeps or retires a flag. Pure; it removes nothing.

    Args:
        entry: standing entry of the flag on its documented workload; None: there is none.
        version: of the project now.
    """
    if entry is None:
        return Judgement(State.UNMEASURED)
    parity = entry.parity
    if parity.state is ParityState.RED and parity.red_since not in (None, version):
        return Judgement(State.CANDIDATE, f"parity red since {parity.red_since}")
    decided = entry.ratio.verdict is not Verdict.UNDECIDED  # as it is without pairs
    if entry.mark is Mark.NOT_SLOWER and decided:
        slower = entry.ratio.verdict is Verdict.SLOWER
        return Judgement(State.KEEP, f"{-entry.ratio.saved_percent:.1f} % slower here" if slower else "")
    share = entry.share
    if share is not None and share.removed_percent >= REMOVED_PERCENT:  # there was little to gain, and it was gained
        return Judgement(State.KEEP, f"{share.part} is lean in eager")
    if decided and entry.ratio.saved_percent >= GAIN_PERCENT:
        return Judgement(State.KEEP)
    return _not_enough(entry)


def _not_enough(entry: Entry) -> Judgement:
    if not entry.pairs:
        return Judgement(State.UNMEASURED, "profiled, not timed")
    if entry.ratio.verdict is Verdict.UNDECIDED:
        return Judgement(State.UNDECIDED, "fewer than three pairs decide nothing")
    share = entry.share
    reason = f"saves {entry.ratio.saved_percent:.1f} %, less than {GAIN_PERCENT:g} %"
    if share is not None:
        reason += f", and removes {share.removed_percent:.0f} % of {share.part}, less than {REMOVED_PERCENT:g} %"
    return Judgement(State.CANDIDATE, reason)


def read_ledger(path: Path) -> tuple[Row, ...]:
    """Read a ledger; one that does not exist yet is empty.

    Raises:
        RunError: it is damaged.
    """
    if not path.exists():
        return ()
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["entries"]
        return tuple(Row(Entry.from_dict(row), tuple(map(Entry.from_dict, row["history"]))) for row in rows)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path} is no ledger: {type(error).__name__}: {error}. Nothing was booked.") from None


def write_ledger(path: Path, rows: Iterable[Row]) -> None:
    """Write a ledger, ordered by key."""
    ordered = sorted(rows, key=lambda row: row.entry.key)
    entries = [{**row.entry.as_dict(), "history": [old.as_dict() for old in row.history]} for row in ordered]
    write_record(path, {"entries": entries})


def booked(rows: Sequence[Row], entries: Iterable[Entry]) -> tuple[Row, ...]:
    """A ledger with further entries: each takes the place of its key's, which becomes history.

    What was booked already is not booked again, and an entry that is older than the standing one goes behind it. Parity
    that is not said is taken over, a share that is not said only from the same commit; red keeps the version of its
    first time. What was profiled alone takes no timed entry's place: it adds its share to it.

    Raises:
        RunError: it was profiled at another commit, or with something else, than it was timed.
    """
    found = {row.entry.key: row for row in rows}
    for entry in entries:
        old = found.get(entry.key)
        if old is None:
            found[entry.key] = Row(entry)
            continue
        parity = entry.parity
        if parity.state is ParityState.UNKNOWN:
            parity = old.entry.parity
        elif parity.state is ParityState.RED and old.entry.parity.state is ParityState.RED:
            parity = replace(parity, red_since=old.entry.parity.red_since)
        if old.entry.pairs and not entry.pairs:
            found[entry.key] = replace(old, entry=_with_share(old.entry, replace(entry, parity=parity)))
            continue
        share = old.entry.share if entry.share is None and entry.commit == old.entry.commit else entry.share
        found[entry.key] = _joined(old, replace(entry, parity=parity, share=share))
    return tuple(found.values())


def _with_share(timed: Entry, profiled: Entry) -> Entry:
    """A timed entry with share and parity of one that was profiled alone."""
    if deviations := timed.deviations(profiled):
        raise RunError(
            f"{timed.workload} {timed.arm} was timed on {timed.device} already, and its profiles have {deviations}. "
            "Profile what was timed, or time the arm again. Nothing was booked."
        )
    return replace(timed, parity=profiled.parity, share=profiled.share)


def _joined(row: Row, entry: Entry) -> Row:
    """A row with another entry: as the standing one, or at its place in the history."""
    measured = [_measured(one) for one in (row.entry, *row.history)]
    if _measured(entry) == measured[0]:
        return Row(entry, row.history)
    if _measured(entry) in measured:
        return row
    if entry.date < row.entry.date:
        return Row(row.entry, tuple(sorted((entry, *row.history), key=lambda one: one.date, reverse=True)))
    return Row(entry, (row.entry, *row.history))


def _measured(entry: Entry) -> dict[str, Any]:
    """What an entry says beside what may be added to it later."""
    return {key: value for key, value in asdict(entry).items() if key not in ("parity", "share", "mark")}
