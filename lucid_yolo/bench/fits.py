"""Complete fits as a record: one run with several seeds, each in a process of its own, condensed into one JSON file.

``python -m lucid_yolo.bench.fits --seeds 0 1 2 --out docs/records/bccd.json experiment=bccd data.root=FOLDER``
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

from lucid_yolo.bench.record import write_record
from lucid_yolo.config.errors import RunError

FROM_SUMMARY = ("status", "seed", "metrics", "timing", "memory", "plan", "best_epoch")
ENVIRONMENT = ("device", "driver", "versions", "commit")


def run_fit(run_dir: Path, overrides: Sequence[str], *, seed: int, validate: Sequence[str]) -> dict[str, Any]:
    """Train once in a process of its own, and score the best checkpoint as asked.

    Args:
        run_dir: place of the run.
        overrides: of the configuration.
        seed: of the run.
        validate: settings of the verb ``validate``; empty for none.

    Returns:
        The run's summary, with the report of ``validate`` under that key.

    Raises:
        RunError: a process failed; its last lines are in the message.
    """
    _verb("train", [*overrides, f"seed={seed}", f"run_dir='{run_dir}'"], log=run_dir.with_suffix(".log"))
    summary: dict[str, Any] = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    if validate:
        out = run_dir / "validation"
        _verb("validate", [f"checkpoint={run_dir}", f"out={out}", *validate], log=run_dir.with_suffix(".val.log"))
        report = json.loads((out / "report.json").read_text(encoding="utf-8"))
        # A record travels, the folders of this machine do not.
        summary["validate"] = {**report, "checkpoint": run_dir.name, "source": from_here(report["source"])}
    return summary


def from_here(place: str) -> str:
    """A place as seen from the working directory; of one that lies elsewhere the name alone."""
    path = Path(place)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name


def condense(summaries: Sequence[Mapping[str, Any]], *, command: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Turn summaries into a record: each run, and mean, least and greatest of every metric.

    Args:
        summaries: of runs that differ in the seed only.
        command: what makes the record again.
        overrides: of the runs.
    """
    names = [name for name, value in summaries[0]["metrics"].items() if value is not None]
    spread = {}
    for name in names:
        values = [summary["metrics"][name] for summary in summaries]
        spread[name] = {"mean": mean(values), "min": min(values), "max": max(values)}
    keys = (*FROM_SUMMARY, *(("validate",) if "validate" in summaries[0] else ()))
    return {
        "command": command,
        "overrides": list(overrides),
        **{key: summaries[0][key] for key in ENVIRONMENT},
        "metrics": spread,
        "runs": [{key: summary[key] for key in keys} for summary in summaries],
    }


def _verb(verb: str, arguments: Sequence[str], *, log: Path) -> None:
    with log.open("w", encoding="utf-8") as file:
        code = subprocess.run(
            [sys.executable, "-m", "lucid_yolo", verb, *arguments], stdout=file, stderr=subprocess.STDOUT, check=False
        ).returncode
    if code != 0:
        tail = "\n".join(log.read_text(encoding="utf-8").splitlines()[-15:])
        raise RunError(f"lucid-yolo {verb} {shlex.join(arguments)} ended with code {code}:\n{tail}")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the fits that the arguments name and write one record."""
    parser = argparse.ArgumentParser(description="Complete fits with several seeds as one record.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--parallel", type=int, default=1, help="fits at the same time; times are comparable only at 1")
    parser.add_argument("--validate", nargs="*", default=[], help="settings of the verb validate, such as split=train")
    parser.add_argument("--runs", type=Path, help="folder to keep the runs in; a temporary one unless given")
    parser.add_argument("--out", type=Path, required=True, help="file of the record")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    options = parser.parse_intermixed_args(argv)
    arguments = sys.argv[1:] if argv is None else list(argv)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.runs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)

        def fit(seed: int) -> dict[str, Any]:
            return run_fit(folder / f"seed_{seed}", options.overrides, seed=seed, validate=options.validate)

        with ThreadPoolExecutor(options.parallel) as pool:
            summaries = list(pool.map(fit, options.seeds))
    record = condense(
        summaries, command=f"python -m lucid_yolo.bench.fits {shlex.join(arguments)}", overrides=options.overrides
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_record(options.out, {**record, "parallel": options.parallel, "cores": os.cpu_count()})
    for name, values in record["metrics"].items():
        print(f"{name:14s} mean {values['mean']:.4f}  {values['min']:.4f} to {values['max']:.4f}")


if __name__ == "__main__":
    main()
