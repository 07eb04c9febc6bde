"""One run of one arm: a training in a process of its own, and what its summary says afterwards."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from lucid_yolo.bench.record import write_record
from lucid_yolo.config import record
from lucid_yolo.config.child import child_environment
from lucid_yolo.config.outcome import UNDONE, fallen_flags

ENVIRONMENT = ("device", "driver", "versions", "commit", "cores")
GRACE_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRun:
    """What one run of an arm gave.

    Attributes:
        arm: name of the arm.
        pair: what pairs it with a run of the baseline: its block, or its seed.
        error: why it does not count; None for a run that does.
        wall_seconds: life of the process, measured from outside; None where nobody measured.
        timing: seconds and rates of its summary.
        memory: peaks of its summary, MiB.
        setup_seconds: what its flags spent on recording, compiling and caching; None where none says.
        primary: its main metric.
        flags: what was active, by flag.
        fallen: flags that were asked for and were not active, or did not stay so.
        data: size of its workload: train_images, batch_size, image_size.
        environment: where it ran.
        date: day of the run; empty where nobody noted it.
    """

    arm: str
    pair: int
    error: str | None = None
    wall_seconds: float | None = None
    timing: Mapping[str, float | None] = field(default_factory=dict)
    memory: Mapping[str, float | None] = field(default_factory=dict)
    setup_seconds: float | None = None
    primary: float | None = None
    flags: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    fallen: tuple[str, ...] = ()
    data: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    date: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain containers."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of ``as_dict``."""
        return cls(**{**values, "fallen": tuple(values.get("fallen", ()))})


def run_arm(
    folder: Path, arm: str, overrides: Sequence[str], *, pair: int, timeout: float | None, keep_checkpoints: bool
) -> ArmRun:
    """Train one arm and keep what it gave in ``folder/ARM.json``; a run that is kept there already is not repeated.

    Args:
        folder: of the block.
        arm: its name; its run directory is ``folder/ARM``, what it printed ``folder/ARM.log``.
        overrides: of its configuration.
        pair: number of the block.
        timeout: seconds after which it counts as failed; None: no limit.
        keep_checkpoints: whether the weights stay.
    """
    if (before := kept_run(folder, arm)) is not None:
        return before
    folder.mkdir(parents=True, exist_ok=True)
    run_dir, log = folder / arm, folder / f"{arm}.log"
    shutil.rmtree(run_dir, ignore_errors=True)  # of an attempt that failed or was cut short
    arguments = ["train", *overrides, "on_unmet=raise", record.as_override("run_dir", str(run_dir))]
    begun = time.perf_counter()
    code = run_child(arguments, log=log, timeout=timeout)
    wall = time.perf_counter() - begun
    if code == 0:
        run = read_run(run_dir, arm=arm, pair=pair, wall_seconds=wall)
    else:
        run = ArmRun(arm=arm, pair=pair, error=explain(code, log.read_text(encoding="utf-8", errors="replace")))
    if not keep_checkpoints:
        shutil.rmtree(run_dir / "checkpoints", ignore_errors=True)
    run = replace(run, date=time.strftime("%Y-%m-%d"))
    write_record(folder / f"{arm}.json", run.as_dict())
    return run


def kept_run(folder: Path, arm: str) -> ArmRun | None:
    """The run of an arm that counts already; None where there is none, or what was kept of it is damaged.

    Args:
        folder: of the block.
        arm: its name.
    """
    try:
        run = ArmRun.from_dict(json.loads((folder / f"{arm}.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return run if run.error is None else None


def run_child(arguments: Sequence[str], *, log: Path, timeout: float | None = None) -> int | None:
    """Run the command line in a child process, also through Ctrl-C: the child saves its state first.

    Args:
        arguments: verb and overrides.
        log: file for what it prints.
        timeout: seconds.

    Returns:
        exit code, negative for the signal that ended it; None: it ran out of time and was stopped.
    """
    command = [sys.executable, "-m", "lucid_yolo", *arguments]
    with (
        log.open("w", encoding="utf-8") as file,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=child_environment(),
            close_fds=False,  # it keeps the lock of its comparison
        ) as child,
    ):
        try:
            return child.wait(timeout)
        except KeyboardInterrupt:
            child.wait()
            raise
        except subprocess.TimeoutExpired:
            child.terminate()
            try:
                child.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
            return None


def read_run(run_dir: Path, *, arm: str, pair: int, wall_seconds: float | None = None) -> ArmRun:
    """Read a finished run; one whose flags did not do what was asked for is a failed one.

    Args:
        run_dir: directory of the run.
        arm: its arm.
        pair: its block or seed.
        wall_seconds: life of its process.
    """
    try:
        summary = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
        return ArmRun(
            arm=arm,
            pair=pair,
            error=summary_error(summary),
            wall_seconds=wall_seconds,
            timing=summary["timing"],
            memory=summary["memory"],
            setup_seconds=setup_seconds(summary["plan"]),
            primary=summary["metrics"].get("primary"),
            flags={key: row["active"] for key, row in summary["plan"].items()},
            fallen=fallen_flags(summary["plan"]),
            data=summary.get("data", {}),
            environment={key: summary.get(key) for key in ENVIRONMENT},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ArmRun(arm=arm, pair=pair, error=f"{run_dir} holds no summary.json that can be read")


def summary_error(summary: Mapping[str, Any]) -> str | None:
    """Why a run does not count: it did not finish, or a flag that was asked for did not stay active."""
    if summary["status"] != "finished":
        return f"the run is {summary['status']}" + (f": {summary['error']}" if summary["error"] else "")
    reasons = []
    for key, row in summary["plan"].items():
        if row["rule_id"] is not None:
            reasons.append(f"{key}={row['requested']} was not active: {row['reason']} [{row['rule_id']}]")
        undone = [f"{key} was {how}: {row['outcome'][how]}" for how in UNDONE if row["outcome"].get(how)]
        reasons += undone or _seldom_replayed(key, row["outcome"])
    return "; ".join(reasons) or None


def _seldom_replayed(key: str, outcome: Mapping[str, Any]) -> list[str]:
    """Why a recording does not count that was kept, and passed over in most steps."""
    if "replays" not in outcome or outcome["replays"] > outcome["native_calls"]:
        return []
    why = f", the last of them because of: {outcome['native_reason']}" if outcome.get("native_reason") else ""
    return [f"{key} was replayed in {outcome['replays']} calls, {outcome['native_calls']} did without it{why}"]


def setup_seconds(plan: Mapping[str, Mapping[str, Any]]) -> float | None:
    """What the flags of a run spent before they saved anything; None where none says."""
    named = [row["outcome"]["setup_seconds"] for row in plan.values() if "setup_seconds" in row["outcome"]]
    return sum(named) if named else None


def explain(code: int | None, printed: str) -> str:
    """Why a process failed: its own words, from its last line that starts with ``error:`` on, else its last line.

    Args:
        code: exit code; None: it ran out of time.
        printed: all it printed.
    """
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    errors = [i for i, line in enumerate(lines) if line.startswith("error:")]
    words = " ".join(lines[errors[-1] :]).removeprefix("error:").strip() if errors else "".join(lines[-1:])
    if code is None:
        return f"it ran out of time; last it printed: {words}"
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}; last it printed: {words}"
    return words or f"it ended with exit code {code} and no words"
