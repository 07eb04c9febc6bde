"""Book reports of comparisons into the ledger.

    python -m lucid_yolo.bench.book docs/ledger.json REPORT ... [--parity green|red --parity-test TEXT] [--share ...]

Reports of one workload from the same commit and machine are pooled, so that a workload may be run in parts. With
``--as WORKLOAD`` their runs are booked for another workload that needs no others, such as one with another baseline.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lucid_yolo import UNKNOWN_VERSION, __version__
from lucid_yolo.bench.arms import ArmRun
from lucid_yolo.bench.comparison import ArmReport, Comparison
from lucid_yolo.bench.ledger import VERSION, Entry, Parity, booked, read_ledger, write_ledger
from lucid_yolo.bench.paired import PairedRatio
from lucid_yolo.bench.profiled import Profiled, read_profiled
from lucid_yolo.bench.record import NOT_INSTALLED
from lucid_yolo.bench.step_profile import StepProfile
from lucid_yolo.config.errors import LucidError, RunError
from lucid_yolo.config.workloads import ParityState, Workload, read_workload, workload_names


def entries_of(report: Comparison, *, parity: Parity) -> list[Entry]:
    """Entries of every arm that has a pair.

    Args:
        report: of one comparison.
        parity: of its arms.

    Raises:
        RunError: the report forbids a comparison, or has no pair at all.
    """
    if report.problems:
        raise RunError(f"{report.workload.name} cannot be booked: {' '.join(report.problems)}")
    base, *arms = report.arms
    found = [
        _timed(report, base, arm, arm.ratios[report.workload.compares], parity)
        for arm in arms
        if report.workload.compares in arm.ratios
    ]
    if not found:
        raise RunError(f"{report.workload.name} cannot be booked: no arm has a pair with the baseline.")
    return found


def _timed(report: Comparison, base: ArmReport, arm: ArmReport, ratio: PairedRatio, parity: Parity) -> Entry:
    """Entry of an arm with its pairs."""
    return replace(
        _untimed(report.workload, arm.name, _first(report, arm.name), date=report.date, parity=parity),
        pairs=ratio.ratios,
        also={str(key): list(one.ratios) for key, one in arm.ratios.items() if key != report.workload.compares},
        setup_seconds=arm.medians["setup"],
        break_even="never" if arm.break_even == math.inf else arm.break_even,
        baseline=base.medians,
        medians=arm.medians,
    )


def _first(report: Comparison, arm: str) -> ArmRun:
    """The first run of an arm that counts."""
    return next(run for run in report.runs if run.arm == arm and run.error is None)


def _untimed(workload: Workload, arm: str, of: ArmRun | StepProfile, *, date: str, parity: Parity) -> Entry:
    """Entry of an arm without its pairs.

    Args:
        workload: that has the arm.
        arm: its name.
        of: a run or a profile of it, which says what was measured and where.
        date: of the report.
        parity: of the arm.

    Raises:
        RunError: it is red since nobody knows which version.
    """
    place = of.environment
    if parity.state is ParityState.RED and parity.red_since is None:
        parity = replace(parity, red_since=_version(workload, place["versions"]))
    return Entry(
        workload=workload.name,
        arm=arm,
        option=" ".join(workload.arms[arm]),
        mark=workload.mark,
        compares=str(workload.compares),
        pairs=(),
        also={},
        setup_seconds=None,
        break_even=None,
        baseline={},
        medians={},
        batch=of.data.get("batch_size"),
        size=of.data.get("image_size"),
        precision=str(of.flags.get("precision")),
        deterministic=str(of.flags.get("deterministic")),
        device=place["device"],
        driver=place["driver"],
        versions=place["versions"],
        commit=place["commit"],
        cores=place["cores"],
        date=date,
        parity=parity,
    )


def _version(workload: Workload, versions: Mapping[str, str]) -> str:
    """Version of the project that was measured; the one that books where a checkout that is not installed was.

    Raises:
        RunError: nobody knows it.
    """
    found = versions.get(VERSION, NOT_INSTALLED)
    found = __version__ if found == NOT_INSTALLED else found
    if found == UNKNOWN_VERSION:
        raise RunError(
            f"{workload.name} cannot be booked as red: its rule counts from a version, and neither the report nor this "
            "checkout has one. Install the project (pip install -e .) and book it again."
        )
    return found


def pooled(reports: Iterable[Comparison]) -> list[Comparison]:
    """Put reports together that differ in nothing but their arms and pairs: parts of one workload.

    A pair stays what it was: an arm and the baseline of the same block of the same report.
    """
    groups: dict[str, list[Comparison]] = {}
    for report in reports:
        same = (report.workload.name, report.workload.common, report.workload.compares, dict(report.environment))
        groups.setdefault(json.dumps(same, sort_keys=True), []).append(report)
    return [_pool(group) for group in groups.values()]


def _pool(reports: Sequence[Comparison]) -> Comparison:
    first = reports[0]
    arms: dict[str, tuple[str, ...]] = {}
    runs, offset = [], 0
    for number, report in enumerate(reports):
        if report in reports[:number]:
            continue  # the same file twice
        if report.workload.baseline != first.workload.baseline:
            raise RunError(
                f"Reports of {first.workload.name} have the baselines {first.workload.baseline} and "
                f"{report.workload.baseline}: book them one by one."
            )
        for arm, overrides in report.workload.arms.items():
            if arms.setdefault(arm, overrides) != overrides:
                raise RunError(f"Reports of {first.workload.name} disagree about arm {arm}: book them one by one.")
        runs += [replace(run, pair=run.pair + offset) for run in report.runs]
        offset += 1 + max((run.pair for run in report.runs), default=0)
    return Comparison(replace(first.workload, arms=arms), tuple(runs), max(report.date for report in reports))


def retold(report: Comparison, workload: Workload) -> Comparison:
    """What the runs of a report say about another workload whose runs are among them.

    Args:
        report: of a comparison.
        workload: with the same common overrides; its arms are some of those that were run.

    Raises:
        RunError: it needs other runs.
    """
    if not workload.is_part_of(report.workload):
        raise RunError(
            f"{report.workload.name} cannot be booked as {workload.name}: the common overrides differ, or it lacks one "
            f"of the arms {', '.join(workload.arms)} with the same overrides."
        )
    runs = tuple(run for run in report.runs if run.arm in workload.arms)
    return Comparison(replace(workload, blocks=report.workload.blocks), runs, report.date)


def book_reports(
    ledger: Path, reports: Sequence[Comparison], *, parity: Parity, profiled: Mapping[str, Profiled] | None = None
) -> list[Entry]:
    """Book reports into a ledger.

    Args:
        ledger: its file; made where there is none.
        reports: of comparisons.
        parity: of the arms.
        profiled: by arm, where it records a part that eager has made small. An arm of the documented workload that no
            report has is booked by its profiles alone.

    Returns:
        what was booked.

    Raises:
        RunError: a report or a profile cannot be booked; then nothing is.
    """
    found = pooled(reports)
    entries = [one for report in found for one in entries_of(report, parity=parity)]
    if profiled:
        if len(found) > 1:
            raise RunError("A share belongs to one workload: book the reports of others by themselves.")
        entries = _with_shares(found[0], entries, profiled, parity)
    write_ledger(ledger, booked(read_ledger(ledger), entries))
    return entries


def _with_shares(
    report: Comparison, timed: Sequence[Entry], profiled: Mapping[str, Profiled], parity: Parity
) -> list[Entry]:
    """The entries of a report with shares, and further ones of arms that were profiled and not timed."""
    entries = {entry.arm: entry for entry in timed}
    for arm, one in profiled.items():
        workload = report.workload if arm in entries else _with_arm(report.workload, arm)
        one.check(workload, arm)
        found = _untimed(workload, arm, one.flagged, date=report.date, parity=parity)
        if arm in entries:
            against, wanted = found, entries[arm]
        else:  # its row names a commit of its own, all else is as in the report
            against = _untimed(workload, workload.baseline, one.eager, date=report.date, parity=parity)
            base = _first(report, report.workload.baseline)
            wanted = _untimed(report.workload, report.workload.baseline, base, date=report.date, parity=parity)
            wanted = replace(wanted, commit=found.commit)
        if deviations := wanted.deviations(against):
            raise RunError(
                f"{one.eager_file} and {one.flagged_file} have {deviations}, which the report of {workload.name} has. "
                f"Profile arm {arm} with what the report was measured with, in the same place."
            )
        entries[arm] = replace(entries.get(arm, found), share=one.share)
    return list(entries.values())


def _with_arm(workload: Workload, arm: str) -> Workload:
    """The documented workload that has an arm which no report has; a report's own where the arm is its baseline."""
    if arm == workload.baseline:
        return workload
    documented = _documented(workload.name)
    if documented is None or arm not in documented.arms:
        arms = ", ".join(list((documented or workload).arms)[1:])
        raise RunError(f"No arm {arm} is booked that its share could belong to; {workload.name} has {arms}.")
    return documented


def _documented(name: str) -> Workload | None:
    """A workload that comes with the package."""
    return read_workload(name) if name in workload_names() else None


def check_ledger(ledger: Path) -> None:
    """Make sure that something can be booked.

    Raises:
        RunError: the ledger is damaged, or its folder does not exist.
    """
    if not ledger.parent.is_dir():
        raise RunError(f"book={ledger}: the folder {ledger.parent} does not exist. Make it, or name another file.")
    read_ledger(ledger)


def read_report(path: Path) -> Comparison:
    """Read the report of a comparison.

    Args:
        path: ``report.json``, or the directory of the comparison.

    Raises:
        RunError: there is none, or it is damaged.
    """
    file = path / "report.json" if path.is_dir() else path
    try:
        return Comparison.from_dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{file} is no report of a comparison: {type(error).__name__}: {error}") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Book the reports that the arguments name.

    Returns:
        exit status: 1 where nothing could be booked.
    """
    parser = argparse.ArgumentParser(description="Book reports of comparisons into the ledger.")
    parser.add_argument("ledger", type=Path, help="file of the ledger, such as docs/ledger.json")
    parser.add_argument("reports", type=Path, nargs="+", help="report.json of a comparison, or its directory")
    parser.add_argument("--as", dest="workload", help="workload whose runs are among those of the reports")
    parser.add_argument("--parity", type=ParityState, default=ParityState.UNKNOWN)
    parser.add_argument("--parity-test", default="", help="which tests said so, and at which commit")
    parser.add_argument(
        "--share",
        nargs=4,
        action="append",
        default=[],
        metavar=("ARM", "PART", "EAGER", "FLAGGED"),
        help="an arm that records a lean part of the step or of the optimizer, and profiles of the verb profile "
        "without and with it",
    )
    options = parser.parse_args(argv)
    parity = Parity(options.parity, options.parity_test)
    try:
        reports = [read_report(path) for path in options.reports]
        if options.workload is not None:
            reports = [retold(report, read_workload(options.workload)) for report in pooled(reports)]
        profiled = read_profiled(options.share)
        entries = book_reports(options.ledger, reports, parity=parity, profiled=profiled)
    except LucidError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for entry in entries:
        ratio = entry.ratio
        timed = f"{ratio.median:.4f} of {len(entry.pairs)} pairs, {ratio.verdict}" if entry.pairs else "profiled"
        print(f"{entry.workload} {entry.arm}: {timed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
