"""The report of a comparison: paired ratios with spread and verdict, and medians of every arm; as table and as data."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from lucid_yolo.bench.arms import ArmRun
from lucid_yolo.bench.notebook import as_html, as_text
from lucid_yolo.bench.paired import PairedRatio, Verdict, break_even_epochs
from lucid_yolo.config.outcome import fell_back
from lucid_yolo.config.workloads import Mark, MeasureName, Workload

NEVER = "never"


@dataclass(frozen=True, slots=True)
class Measure:
    """A time of a run.

    Attributes:
        label: for a table.
        unit: of the value.
        read: value of a run, None where it has none.
    """

    label: str
    unit: str
    read: Callable[[ArmRun], float | None]


def _timing(key: str) -> Callable[[ArmRun], float | None]:
    return lambda run: run.timing.get(key)


def _memory(key: str) -> Callable[[ArmRun], float | None]:
    return lambda run: run.memory.get(key)


def _image_ms(run: ArmRun) -> float | None:
    rate = run.timing.get("images_per_second")
    return 1000.0 / rate if rate else None


# What a ratio can be made of: lower is faster.
PAIRED: Mapping[MeasureName, Measure] = {
    MeasureName.COMPLETE_FIT: Measure("complete fit", "s", _timing("total_seconds")),
    MeasureName.STEP: Measure("step after warm-up", "ms", _timing("step_ms_median")),
    MeasureName.IMAGE: Measure("time an image", "ms", _image_ms),
}
SHOWN: Mapping[str, Measure] = {
    "complete_fit": PAIRED[MeasureName.COMPLETE_FIT],
    "wall": Measure("process", "s", lambda run: run.wall_seconds),
    "fit": Measure("fit", "s", _timing("fit_seconds")),
    "first_step": Measure("first step after", "s", _timing("first_step_seconds")),
    "step": Measure("step", "ms", _timing("step_ms_median")),
    "images": Measure("images", "/s", _timing("images_per_second")),
    "data_wait": Measure("waiting for data", "share", _timing("data_wait_share")),
    "setup": Measure("set-up", "s", lambda run: run.setup_seconds),
    "allocated": Measure("allocated", "MiB", _memory("peak_allocated_mib")),
    "reserved": Measure("reserved", "MiB", _memory("peak_reserved_mib")),
    "host": Measure("host", "MiB", _memory("host_peak_mib")),
}


@dataclass(frozen=True, slots=True)
class ArmReport:
    """What a comparison says about one arm.

    Attributes:
        name: of the arm.
        overrides: its own.
        medians: over its runs that count, by key of ``SHOWN``; None where no run has the value.
        ratios: against the baseline, by what they are made of; empty for the baseline and without a pair.
        break_even: epochs until its set-up has come back; infinity: never; None: it has no set-up or no pair.
        flags: what was active in its runs.
        fallen: flags that were asked for and were not active in one of its runs, or did not stay so.
        errors: of its runs that do not count.
        runs: how many count.
    """

    name: str
    overrides: tuple[str, ...]
    medians: Mapping[str, float | None]
    ratios: Mapping[MeasureName, PairedRatio]
    break_even: float | None
    flags: Mapping[str, Any]
    fallen: tuple[str, ...]
    errors: tuple[str, ...]
    runs: int


@dataclass(frozen=True)
class Comparison:
    """What was run, and what follows from it.

    Attributes:
        workload: what was compared.
        runs: all of them, failed ones too.
        date: day of the last run.
    """

    workload: Workload
    runs: tuple[ArmRun, ...]
    date: str

    @classmethod
    def of(cls, workload: Workload, runs: Sequence[ArmRun]) -> Self:
        """Report on runs; those that nobody dated count as of today."""
        return cls(workload, tuple(runs), max((run.date for run in runs), default="") or time.strftime("%Y-%m-%d"))

    @property
    def environment(self) -> Mapping[str, Any]:
        """Where the first run that counts ran; empty where none does."""
        return next((run.environment for run in self.runs if run.error is None), {})

    @property
    def problems(self) -> tuple[str, ...]:
        """What forbids a comparison: runs that were made in different places or on different amounts of data."""
        found = []
        good = [run for run in self.runs if run.error is None]
        for name in dict.fromkeys(key for run in good for key in run.environment):
            values = {str(run.environment.get(name)): run for run in good}
            if len(values) > 1:
                where = "; ".join(f"{run.arm}, pair {run.pair}: {value}" for value, run in values.items())
                found.append(f"The runs differ in {name}, so their ratios say nothing about the arms: {where}.")
        return tuple(found)

    @property
    def ok(self) -> bool:
        """Whether every run counts and nothing forbids a comparison."""
        return not self.problems and all(run.error is None for run in self.runs)

    @property
    def arms(self) -> tuple[ArmReport, ...]:
        """One report an arm, the baseline first."""
        return tuple(self._arm(name) for name in self.workload.arms)

    @property
    def measure(self) -> Measure:
        """What the ratio in the table is made of."""
        return PAIRED[self.workload.compares]

    def _counting(self, arm: str) -> dict[int, ArmRun]:
        return {run.pair: run for run in self.runs if run.arm == arm and run.error is None}

    def _arm(self, name: str) -> ArmReport:
        own, base = self._counting(name), self._counting(self.workload.baseline)
        ratios: dict[MeasureName, PairedRatio] = {}
        if name != self.workload.baseline:
            for key, measure in PAIRED.items():
                values = [(measure.read(own[pair]), measure.read(base[pair])) for pair in sorted(own) if pair in base]
                paired = tuple(mine / theirs for mine, theirs in values if mine is not None and theirs)
                if paired:
                    ratios[key] = PairedRatio(paired)
        return ArmReport(
            name=name,
            overrides=self.workload.arms[name],
            medians={key: _median([measure.read(run) for run in own.values()]) for key, measure in SHOWN.items()},
            ratios=ratios,
            break_even=None if name == self.workload.baseline else self._break_even(own, base),
            flags=next((run.flags for run in own.values()), {}),
            fallen=tuple(dict.fromkeys(flag for run in self.runs if run.arm == name for flag in run.fallen)),
            errors=tuple(run.error for run in self.runs if run.arm == name and run.error is not None),
            runs=len(own),
        )

    def _break_even(self, own: Mapping[int, ArmRun], base: Mapping[int, ArmRun]) -> float | None:
        pairs = [(own[pair], base[pair]) for pair in own if pair in base]
        setup = _median([run.setup_seconds for run, _ in pairs])
        saved = _median([_saved_an_epoch(run, other) for run, other in pairs])
        if setup is None or saved is None:
            return None
        return break_even_epochs(setup_seconds=setup, saved_seconds_per_epoch=saved)

    def as_dict(self) -> dict[str, Any]:
        """The report as plain containers; ``from_dict`` needs ``workload``, ``runs`` and ``date`` of it only."""
        return {
            "workload": asdict(self.workload),
            "date": self.date,
            "environment": dict(self.environment),
            "problems": list(self.problems),
            "arms": [_arm_values(arm) for arm in self.arms],
            "runs": [run.as_dict() for run in self.runs],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of ``as_dict``: everything else is computed again."""
        stored = values["workload"]
        workload = Workload(
            name=stored["name"],
            question=stored["question"],
            compares=MeasureName(stored["compares"]),
            blocks=stored["blocks"],
            common=tuple(stored["common"]),
            arms={arm: tuple(lines) for arm, lines in stored["arms"].items()},
            mark=None if stored["mark"] is None else Mark(stored["mark"]),
        )
        return cls(workload, tuple(ArmRun.from_dict(run) for run in values["runs"]), values["date"])

    def ratio_rows(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Header and cells of the paired ratios."""
        header = ("arm", "pairs", "ratio", "spread", "interval", "saved", "verdict", "break-even epochs")
        return header, [_ratio_cells(arm, self) for arm in self.arms]

    def median_rows(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Header and cells of the medians, a column an arm; what no arm has a value for is left out."""
        arms = self.arms
        known = [key for key in SHOWN if any(arm.medians[key] is not None for arm in arms)]
        rows = [(SHOWN[key].label, SHOWN[key].unit, *(_number(arm.medians[key]) for arm in arms)) for key in known]
        return ("median", "unit", *(arm.name for arm in arms)), [("runs", "", *(str(arm.runs) for arm in arms)), *rows]

    def sentences(self) -> list[str]:
        """What stands below the tables: how to read them, where it ran, what failed, what forbids a comparison."""
        found = [
            f"ratio: {self.measure.label} of the arm / of {self.workload.baseline}, by pair; below 1 is faster. "
            "interval: where the median ratio lies, with its coverage, by the sign test, which assumes nothing about "
            "their distribution; a verdict needs it to leave out 1."
        ]
        if (place := self._place()) is not None:
            found.append(place)
        for arm in self.arms:
            counts = {error: arm.errors.count(error) for error in dict.fromkeys(arm.errors)}
            found += [f"{arm.name} failed {times}x: {error}" for error, times in counts.items()]
        return [*found, *self.problems]

    def _place(self) -> str | None:
        place = self.environment
        if not place:
            return None
        driver = f", driver {place['driver']}" if place.get("driver") else ""
        return (
            f"{place['device']}{driver}, torch {place['versions']['torch']}, commit {place['commit']}, "
            f"{place['cores']} cores, {self.date}."
        )

    def to_markdown(self) -> str:
        """Tables and sentences as a Markdown page."""
        parts = [f"# {self.workload.name}", self.workload.question]
        parts += [_markdown_table(header, rows) for header, rows in (self.ratio_rows(), self.median_rows())]
        parts.append("\n".join(f"- {sentence}" for sentence in self.sentences()))
        return "\n\n".join(part for part in parts if part) + "\n"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Show both tables and the sentences."""
        title = f"{self.workload.name}: {self.workload.question}" if self.workload.question else self.workload.name
        parts: list[Table | Text] = []
        for caption, (header, rows) in ((title, self.ratio_rows()), (None, self.median_rows())):
            shown = Table(title=caption, title_justify="left")
            for name, *cells in zip(header, *rows, strict=True):
                words = [cell.partition(",")[0] for cell in cells]  # a verdict is not broken, flags behind it may be
                shown.add_column(name, overflow="fold", min_width=max(map(len, words)) if name == "verdict" else None)
            for row in rows:
                shown.add_row(*map(Text, row))
            parts.append(shown)
        yield Group(*parts, *(Text(sentence) for sentence in self.sentences()))

    def __str__(self) -> str:
        """Show the same as text."""
        return as_text(self)

    def _repr_html_(self) -> str:
        """Show the same in a notebook."""
        return as_html(self)


def _saved_an_epoch(run: ArmRun, base: ArmRun) -> float | None:
    """Seconds of training that an epoch takes less than in the baseline."""
    mine, theirs, images = _image_ms(run), _image_ms(base), run.data.get("train_images")
    if mine is None or theirs is None or images is None:
        return None
    return (theirs - mine) * images / 1000.0


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _arm_values(arm: ArmReport) -> dict[str, Any]:
    return {
        "name": arm.name,
        "overrides": list(arm.overrides),
        "runs": arm.runs,
        "medians": dict(arm.medians),
        "ratios": {str(key): ratio_values(ratio) for key, ratio in arm.ratios.items()},
        "break_even_epochs": NEVER if arm.break_even == math.inf else arm.break_even,
        "flags": dict(arm.flags),
        "errors": list(arm.errors),
    }


def ratio_values(ratio: PairedRatio) -> dict[str, Any]:
    """A paired ratio as plain containers."""
    interval = ratio.interval
    return {
        "pairs": list(ratio.ratios),
        "median": ratio.median,
        "min": ratio.low,
        "max": ratio.high,
        "interval": {"low": interval.low, "high": interval.high, "coverage": interval.coverage},
        "saved_percent": ratio.saved_percent,
        "verdict": str(ratio.verdict),
    }


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["--"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _ratio_cells(arm: ArmReport, report: Comparison) -> tuple[str, ...]:
    if arm.name == report.workload.baseline:
        return (arm.name, "", "1", "", "", "", _with_fallen("baseline", arm), "")
    ratio = arm.ratios.get(report.workload.compares)
    if ratio is None:
        return (arm.name, "0", "", "", "", "", _with_fallen("failed" if arm.errors else "no pair", arm), "")
    return (
        arm.name,
        str(len(ratio.ratios)),
        f"{ratio.median:.4f}",
        f"{ratio.low:.4f} to {ratio.high:.4f}",
        _interval_cell(ratio),
        f"{ratio.saved_percent:.1f} %",
        _with_fallen("not comparable" if report.problems else str(ratio.verdict), arm),
        break_even_cell(arm.break_even),
    )


def _with_fallen(verdict: str, arm: ArmReport) -> str:
    """A verdict, and which flags were not what was asked for: such runs do not count."""
    return ", ".join(filter(None, (verdict, fell_back(arm.fallen))))


def _interval_cell(ratio: PairedRatio) -> str:
    """Interval and coverage; with a few pairs it is the spread itself."""
    if ratio.verdict is Verdict.UNDECIDED:
        return ""
    found = ratio.interval
    where = "spread" if (found.low, found.high) == (ratio.low, ratio.high) else f"{found.low:.4f} to {found.high:.4f}"
    return f"{where}, {100 * found.coverage:.4g} %"


def break_even_cell(epochs: float | None) -> str:
    """Break-even in words; empty where it is unknown."""
    if epochs is None:
        return ""
    return NEVER if epochs == math.inf else f"{epochs:.2g}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
