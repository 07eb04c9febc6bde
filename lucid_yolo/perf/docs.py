"""Tables of the documentation that are generated: ``python -m lucid_yolo.perf.docs [--check] [FOLDER]``.

A page holds a pair of marker lines for each table; only what stands between them is written.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from lucid_yolo.config.elsewhere import FLAGS
from lucid_yolo.perf.flag import Flag, find_flags


def flag_table(flags: Sequence[Flag]) -> str:
    """Markdown table, one row a flag."""
    rows = [(f"`{f.key}`", f"`{f.option}`" if f.option else "follows the device", f.summary) for f in flags]
    return table(("plan row", "option", "what it does"), rows)


def rule_table(flags: Sequence[Flag]) -> str:
    """Markdown table, one row a rule; what is filled in at run time stands in angle brackets."""
    rows = [
        (f"`{r.id}`", f"`{f.key}`", str(r.stage), str(r.kind), _readable(r.sentence)) for f in flags for r in f.rules
    ]
    return table(("id", "flag", "stage", "effect", "what the user reads"), rows)


def name_table() -> str:
    """Markdown table, one row a flag of other projects."""
    return table(("flag elsewhere", "here"), [(f"`{name}`", _as_code(here)) for name, here in FLAGS.items()])


def fill(page: str, name: str, content: str) -> str:
    """Replace what stands between a page's markers.

    Args:
        page: text with ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``.
        name: of the markers.
        content: what to put between them.

    Raises:
        ValueError: the page does not hold the pair of markers exactly once.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    filled, count = re.subn(
        f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: f"{begin}\n\n{content}\n\n{end}", page, flags=re.DOTALL
    )
    if count != 1:
        raise ValueError(f"expected one pair of markers {begin} ... {end}, found {count}")
    return filled


def main(argv: Sequence[str] | None = None) -> int:
    """Write the tables, or with ``--check`` only say whether they are up to date.

    Returns:
        exit status: 1 if ``--check`` found a page that is out of date.
    """
    parser = argparse.ArgumentParser(description="Write the generated tables of the documentation.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("docs"))
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a table is out of date")
    arguments = parser.parse_args(argv)
    path = arguments.folder / "flags.md"
    flags = find_flags()
    page = path.read_text(encoding="utf-8")
    filled = page
    for name, content in (("flags", flag_table(flags)), ("rules", rule_table(flags)), ("names", name_table())):
        filled = fill(filled, name, content)
    if not arguments.check:
        path.write_text(filled, encoding="utf-8")
    elif filled != page:
        print(f"{path} is out of date; write it with: python -m lucid_yolo.perf.docs", file=sys.stderr)
        return 1
    return 0


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown table."""
    lines = [header, ["--"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _as_code(text: str) -> str:
    """Every ``group=option`` of a text as code."""
    return re.sub(r"\w+=\w+", lambda match: f"`{match[0]}`", text)


def _readable(sentence: str) -> str:
    """``{machine.device_name}`` as ``<device name>``, escaped for Markdown."""
    return re.sub(r"\{(?:\w+\.)*(\w+)\}", lambda match: f"&lt;{match[1].replace('_', ' ')}&gt;", sentence)


if __name__ == "__main__":
    sys.exit(main())
