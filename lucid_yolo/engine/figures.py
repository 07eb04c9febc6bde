"""Figures of README and documentation: ``python -m lucid_yolo.engine.figures [--check]``.

A page holds a pair of marker lines ``<!-- figures NAME: begin -->`` and ``end`` for each record that it shows, and
``<!-- ledger: begin -->`` and ``end`` for the ledger.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lucid_yolo import __version__
from lucid_yolo.bench.figures import FigureTable, read_tables
from lucid_yolo.bench.ledger import State, read_ledger
from lucid_yolo.bench.ledger_table import HEADER, ledger_rows, unmeasured
from lucid_yolo.config.workloads import read_workload, workload_names
from lucid_yolo.perf.docs import fill, table

PAGES = ("README.md", "docs/figures.md", "docs/measuring.md")
LEDGER = "docs/ledger.json"


def fill_page(page: str, tables: Sequence[FigureTable], ledger: str) -> str:
    """Write the tables that a page has markers for."""
    if "<!-- ledger: begin -->" in page:
        page = fill(page, "ledger", ledger)
    for one in tables:
        if f"<!-- figures {one.name}: begin -->" in page:
            page = fill(page, f"figures {one.name}", f"{table(one.header, one.rows)}\n\n{one.source}")
    return page


def ledger_table(path: Path) -> str:
    """Markdown of a ledger: a table of what was measured, its notes, and the arms that were not measured."""
    workloads = [workload for name in workload_names() if (workload := read_workload(name)).mark is not None]
    rows = read_ledger(path)
    cells = [dict(zip(HEADER, row, strict=True)) for row in ledger_rows(rows, workloads, version=__version__)]
    measured = [row for row in cells if row["state"] != State.UNMEASURED]
    notes = list(dict.fromkeys(map(_note, measured)))
    header = tuple(name for name in HEADER if name not in NOTED)
    shown = [(*(row[name] for name in header), str(notes.index(_note(row)) + 1)) for row in measured]
    numbered = [f"{i}. {note}" for i, note in enumerate(notes, start=1)]
    waiting = [f"- `{name}`: {', '.join(arms)}" for name, arms in unmeasured(rows, workloads).items()]
    return "\n".join(
        (table((*header, "note"), shown), "", *numbered, "", "Arms that are not measured yet:", "", *waiting)
    )


NOTED = ("device", "parity", "measured with")
"""Columns of the ledger that stand below its table: many rows share them."""


def _note(cells: Mapping[str, str]) -> str:
    return f"{cells['device']}, {cells['measured with']}; parity {cells['parity']}"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the figures, or with ``--check`` only say whether they are up to date.

    Returns:
        exit status: 1 if ``--check`` found a page that is out of date.
    """
    parser = argparse.ArgumentParser(description="Write the figures of README and documentation from the records.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="the checkout")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a figure is out of date")
    options = parser.parse_args(argv)
    tables = read_tables(options.folder / "docs" / "records")
    ledger = ledger_table(options.folder / LEDGER)
    late = []
    for name in PAGES:
        path = options.folder / name
        page = path.read_text(encoding="utf-8")
        filled = fill_page(page, tables, ledger)
        if filled == page:
            continue
        late.append(name)
        if not options.check:
            path.write_text(filled, encoding="utf-8")
    if options.check and late:
        print(
            f"{', '.join(late)}: figures out of date; write them with: python -m lucid_yolo.engine.figures",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
