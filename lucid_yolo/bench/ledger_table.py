"""The table of a ledger, and the arms of documented workloads that are not in it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from lucid_yolo.bench.comparison import break_even_cell
from lucid_yolo.bench.ledger import Entry, Row, State, judge
from lucid_yolo.bench.paired import PairedRatio, Verdict
from lucid_yolo.config.tasks import TaskName
from lucid_yolo.config.workloads import Workload

HEADER = (
    "task", "option", "workload", "device", "saved", "spread of the ratio", "pairs", "saved of a step", "set-up, s",
    "break-even, epochs", "reserved, MiB", "eager share", "parity", "measured with", "state",
)  # fmt: skip


def ledger_rows(rows: Sequence[Row], workloads: Sequence[Workload], *, version: str) -> list[tuple[str, ...]]:
    """Cells of the table: every arm of every documented workload, task by task, what was measured first.

    Args:
        rows: of the ledger.
        workloads: documented ones.
        version: of the project.
    """
    cells = []
    for workload in sorted(workloads, key=_in_table):
        beside = workload.arms[workload.baseline]
        against = f" against `{' '.join(beside)}`" if beside else ""
        for arm in list(workload.arms)[1:]:
            option = f"`{' '.join(workload.arms[arm])}`{against}"
            entries = [row.entry for row in rows if (row.entry.workload, row.entry.arm) == (workload.name, arm)]
            if not entries:
                blank = ("",) * (len(HEADER) - 4)
                cells.append((workload.task, option, workload.name, *blank, str(judge(None, version=version).state)))
            cells += [(workload.task, f"`{one.option}`{against}", *_cells(one, version)) for one in entries]
    return sorted(cells, key=lambda row: row[-1] == State.UNMEASURED)


def unmeasured(rows: Sequence[Row], workloads: Sequence[Workload]) -> dict[str, list[str]]:
    """Arms of documented workloads that the ledger has no entry of, by workload, task by task."""
    booked_arms = {(row.entry.workload, row.entry.arm) for row in rows}
    found = {
        workload.name: [arm for arm in list(workload.arms)[1:] if (workload.name, arm) not in booked_arms]
        for workload in sorted(workloads, key=_in_table)
    }
    return {name: arms for name, arms in found.items() if arms}


def _in_table(workload: Workload) -> tuple[int, list[tuple[str, int]]]:
    """Place of a workload: by task, then by name, where b4 stands before b16."""
    tasks = [str(name) for name in TaskName]
    words = re.findall(r"(\D*)(\d*)", workload.name)
    return tasks.index(workload.task), [(word, int(number or 0)) for word, number in words]


def _cells(entry: Entry, version: str) -> tuple[str, ...]:
    """What was measured, behind task and option."""
    judged, share = judge(entry, version=version), entry.share
    epochs = math.inf if entry.break_even == "never" else entry.break_even
    reserved = (entry.baseline.get("reserved"), entry.medians.get("reserved"))
    driver = f", driver {entry.driver}" if entry.driver else ""
    return (
        f"{entry.workload}: {_MEASURED[entry.compares]}",
        entry.device,
        *_ratio_cells(entry.ratio if entry.pairs else None),
        f"{PairedRatio(tuple(entry.also['step'])).saved_percent:.1f} %" if "step" in entry.also else "",
        "" if entry.setup_seconds is None else f"{entry.setup_seconds:.1f}",
        break_even_cell(None if epochs is None else float(epochs)),
        "" if None in reserved else f"{reserved[0]:.0f} to {reserved[1]:.0f}",
        "" if share is None else f"{share.part}: {share.percent:.1f} %, of it {share.removed_percent:.0f} % removed",
        " ".join(filter(None, (str(entry.parity.state), entry.parity.test))),
        f"torch {entry.versions['torch']}{driver}, commit {entry.commit}, {entry.precision}, batch {entry.batch}, "
        f"{entry.size} px, deterministic {entry.deterministic}, {entry.date}",
        f"{judged.state}{f': {judged.reason}' if judged.reason else ''}",
    )


def _ratio_cells(ratio: PairedRatio | None) -> tuple[str, str, str]:
    """Saving, spread and number of the pairs."""
    if ratio is None:
        return "", "", "profile only"
    spread = f"{ratio.median:.4f} ({ratio.low:.4f} to {ratio.high:.4f})"
    saved = f"{ratio.saved_percent:.1f} %" if ratio.median <= 1 else f"none: {ratio.median:.2f} times as long"
    shown = saved if ratio.verdict is Verdict.UNDECIDED else f"**{saved}**"
    return f"{shown}, {ratio.verdict}", spread, str(len(ratio.ratios))


_MEASURED = {"complete_fit": "complete fit", "step": "step", "image": "time an image"}
