"""Runs that exist already, such as a sweep's, as a comparison: an arm is a group of runs that differ in the seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from omegaconf import ListConfig, OmegaConf

from lucid_yolo.bench.arms import ArmRun, read_run
from lucid_yolo.bench.comparison import Comparison
from lucid_yolo.config import record
from lucid_yolo.config.errors import ConfigError, RunError
from lucid_yolo.config.names import did_you_mean
from lucid_yolo.config.workloads import MeasureName, Workload

DEFAULTS = "defaults"  # the arm of runs without an override of their own
NOT_OF_AN_ARM = ("seed", "run_dir", "resume", "on_unmet")


def compare_runs(folder: Path, *, baseline: str | None, compares: MeasureName) -> Comparison:
    """Pair the runs below a folder by their seed.

    An arm is named by the overrides that not all runs share, such as ``capture=network``.

    Args:
        folder: with one run directory a run, at any depth.
        baseline: arm that the others are compared with; None where one is named ``defaults`` or has only ``none``.
        compares: what the ratio is made of.

    Raises:
        RunError: there are no runs, or two of the same arm and seed.
        ConfigError: the baseline is no arm, or is needed.
    """
    found = {path.parent: _overrides(path.parent) for path in sorted(folder.rglob("summary.json"), key=_by_number)}
    if not found:
        raise RunError(
            f"runs={folder}: there are no runs below it. Name the folder that a sweep printed as its run_dir."
        )
    shared = set.intersection(*(set(lines) for lines in found.values()))
    own = {run: tuple(line for line in lines if line not in shared) for run, lines in found.items()}
    names = {run: "+".join(lines) or DEFAULTS for run, lines in own.items()}
    first = _baseline(list(dict.fromkeys(names.values())), baseline, folder)
    arms = {names[run]: lines for run, lines in sorted(own.items(), key=lambda pair: names[pair[0]] != first)}
    if len(arms) < 2:
        raise RunError(f"runs={folder}: all runs have the same overrides, there is nothing to compare.")
    runs = [_read(run, names[run]) for run in found]
    _refuse_twins(runs, folder)
    workload = Workload(
        name=folder.resolve().name,
        question="",
        compares=compares,
        blocks=len({run.pair for run in runs}),
        common=tuple(line for line in next(iter(found.values())) if line in shared),
        arms=arms,
    )
    return Comparison.of(workload, runs)


def _overrides(run: Path) -> tuple[str, ...]:
    file = run / "overrides.yaml"
    lines = OmegaConf.load(file) if file.is_file() else OmegaConf.create([])
    texts = [str(line) for line in lines] if isinstance(lines, ListConfig) else []
    return tuple(sorted(line for line in texts if record.key_of(line) not in NOT_OF_AN_ARM and "hydra" not in line))


def _read(run: Path, arm: str) -> ArmRun:
    try:
        seed = int(json.loads((run / "summary.json").read_text(encoding="utf-8"))["seed"])
    except (OSError, ValueError, KeyError, TypeError):
        return ArmRun(arm=arm, pair=-1, error=f"{run} holds no summary.json that can be read")
    return read_run(run, arm=arm, pair=seed)


def _refuse_twins(runs: Sequence[ArmRun], folder: Path) -> None:
    seen: set[tuple[str, int]] = set()
    for run in runs:
        if run.error is None and (run.arm, run.pair) in seen:
            raise RunError(
                f"runs={folder}: two runs of {run.arm} have seed {run.pair}; runs are paired by seed, so each arm may "
                "have one run a seed. Name the folder of one sweep."
            )
        seen.add((run.arm, run.pair))


def _baseline(arms: Sequence[str], asked: str | None, folder: Path) -> str:
    if asked in arms:
        return str(asked)
    if asked is not None:
        raise ConfigError(
            [f"baseline={asked}: there is no such arm.{did_you_mean(asked, arms)} Arms: {', '.join(arms)}."]
        )
    plain = [arm for arm in arms if arm == DEFAULTS or all(part.endswith("=none") for part in arm.split("+"))]
    if len(plain) != 1:
        raise ConfigError([f"runs={folder}: say which arm the others are compared with: baseline={' or '.join(arms)}."])
    return plain[0]


def _by_number(path: Path) -> tuple[int, str]:
    """Order of a sweep's jobs: 2 before 10."""
    name = path.parent.name
    return (int(name) if name.isdigit() else -1, str(path))
