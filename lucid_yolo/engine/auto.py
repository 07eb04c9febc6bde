"""``capture=auto``: have a trial made, or remember one, and resolve the run again with what it picked."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from omegaconf import OmegaConf

from lucid_yolo.bench.record import commit, versions, write_record
from lucid_yolo.config import record
from lucid_yolo.config.child import child_environment
from lucid_yolo.config.compose import overrides_of
from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.paths import cache_directory
from lucid_yolo.config.regions import AUTO, JOIN, NONE, OPTIONS, REGIONS, STEP
from lucid_yolo.config.schema import OnUnmet, RootConfig
from lucid_yolo.engine.console import RunConsole
from lucid_yolo.engine.prepare import Prepared
from lucid_yolo.engine.report import MIB
from lucid_yolo.perf.plan import RunPlan, resolve
from lucid_yolo.perf.trial import Pick, Trial, pick, table_of

KEY = f"capture.{AUTO}"

Measure = Callable[[RootConfig, Sequence[str]], Sequence[Trial]]
"""Times candidates of a run, the eager step first."""

# What a step's time depends on; the length of the run does not belong to it.
WORKLOAD = (
    "task",
    "model",
    "data",
    "optimizer.name",
    "precision",
    "trainer.accumulate",
    "trainer.clip_norm",
    "trainer.deterministic",
    "hsv",
    "cache",
    "compile",
    "kernels",
    "prefetch",
)


@dataclass(frozen=True)
class Found:
    """What is known about the candidates of a run.

    Attributes:
        trials: one a candidate, the eager step first.
        seconds: that the trial took.
        remembered: whether an earlier run made it.
    """

    trials: tuple[Trial, ...]
    seconds: float
    remembered: bool


def settle(prepared: Prepared, console: RunConsole, measure: Measure | None = None) -> Prepared:
    """Replace ``capture=auto`` by what a trial picks; a run without it comes back as it is.

    Args:
        prepared: a run that was planned and not refused.
        console: where the trial's table goes.
        measure: times the candidates; default: a child process.

    Raises:
        ConfigError: the pick is refused after all, which would be a mistake of ours.
    """
    if not prepared.plan[KEY].active:
        return prepared
    root = prepared.config
    file = cache_directory() / AUTO / f"{_workload_key(prepared)}.json"
    found = None if root.capture.auto.again else _recall(file)
    if found is None:
        options = candidates(root, prepared.plan)
        console.print(f"capture=auto: timing {', '.join(options)} for at most {root.capture.auto.timeout:.0f} s ...")
        begun = time.perf_counter()
        trials = tuple((measure or measure_in_child)(root, options))
        found = Found(trials, time.perf_counter() - begun, remembered=False)
        if all(trial.step_ms is not None or trial.error for trial in trials) and trials[0].step_ms is not None:
            _remember(file, found)
    picked = pick(found.trials, steps=_planned_steps(prepared), memory_mib=_device_memory(prepared))
    console.print(table_of(found.trials, picked))
    return _with(prepared, picked, found)


def candidates(root: RootConfig, plan: RunPlan) -> tuple[str, ...]:
    """Options to compare: no recording, every region that can be had, the whole step if it can.

    Args:
        root: the run.
        plan: of it, for its machine.
    """
    regions = JOIN.join(name for name in REGIONS if _can_be_had(root, plan, name))
    step = STEP if _can_be_had(root, plan, STEP) else ""
    return tuple(option for option in (NONE, regions, step) if option)


def measure_in_child(root: RootConfig, options: Sequence[str]) -> list[Trial]:
    """Time candidates in a process of their own, for as long as the settings allow.

    Args:
        root: the run.
        options: of ``capture``.
    """
    settings = root.capture.auto
    plain = select(root, NONE)
    lines = [line for line in overrides_of(plain) if record.key_of(line) not in ("capture", "run_dir", "resume")]
    with TemporaryDirectory(prefix="lucid-yolo-") as scratch:
        out, log = Path(scratch) / "trials.json", Path(scratch) / "trial.log"
        command = [sys.executable, "-m", "lucid_yolo.engine.trial", str(out), str(settings.steps), ",".join(options)]
        ending = _run([*command, *lines], log, timeout=settings.timeout)
        measured = _read_trials(out) if out.exists() else []
    done = {trial.option for trial in measured}
    return measured + [Trial(option=option, error=ending) for option in options if option not in done]


def select(root: RootConfig, option: str) -> RootConfig:
    """A configuration that records what an option says, and nothing else."""
    wanted = set(option.split(JOIN))
    chosen = {name: replace(getattr(root.capture, name), selected=name in wanted) for name in OPTIONS}
    return replace(root, capture=replace(root.capture, **chosen))


def _can_be_had(root: RootConfig, plan: RunPlan, option: str) -> bool:
    try:
        found = resolve(replace(select(root, option), on_unmet=OnUnmet.FALLBACK), plan.machine, None)
    except ConfigError:
        return False
    return bool(found[f"capture.{option}"].active)


def _with(prepared: Prepared, picked: Pick, found: Found) -> Prepared:
    """The run with the pick, resolved like any other; the plan's row tells of the trial."""
    config = select(prepared.config, picked.option)
    found_again = resolve(config, prepared.plan.machine, None)  # no rule of a recording looks at the data
    how = "remembered from an earlier run" if found.remembered else f"measured in {found.seconds:.0f} s"
    told = replace(
        prepared.plan[KEY],
        reason=f"{picked.reason} ({how})",
        outcome={"picked": picked.option, "seconds": 0.0 if found.remembered else round(found.seconds, 1)},
    )
    rows = {row.key: row for row in found_again.rows if row.key.startswith("capture.")} | {KEY: told}
    plan = replace(prepared.plan, rows=tuple(rows.get(row.key, row) for row in prepared.plan.rows))
    return replace(prepared, config=config, plan=plan)


def _planned_steps(prepared: Prepared) -> int:
    data, trainer = prepared.config.data, prepared.config.trainer
    batches = -(-len(prepared.splits.train) // data.batch_size)
    steps = -(-batches // trainer.accumulate) * trainer.max_epochs
    return steps if trainer.max_steps is None else min(steps, trainer.max_steps)


def _device_memory(prepared: Prepared) -> float:
    return prepared.plan.machine.cuda_devices[0].memory / MIB


def _workload_key(prepared: Prepared) -> str:
    """A name for what was measured and where: the same step on the same machine has the same."""
    machine = prepared.plan.machine
    values = record.values(OmegaConf.structured(prepared.config))
    workload = {k: v for k, v in values.items() if any(k == name or k.startswith(f"{name}.") for name in WORKLOAD)}
    place = [machine.device_name, machine.cores, machine.torch_version, machine.triton, versions(), commit()]
    size = [len(prepared.splits.train), prepared.rows, prepared.workers.count, prepared.config.capture.auto.steps]
    text = json.dumps([workload, place, size], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _recall(file: Path) -> Found | None:
    """A trial of an earlier run; None where there is none, or its file is damaged."""
    try:
        trials = tuple(_read_trials(file))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return Found(trials, 0.0, remembered=True) if trials and trials[0].step_ms is not None else None


def _remember(file: Path, found: Found) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_record(file, {"trials": [trial.as_dict() for trial in found.trials], "seconds": found.seconds})
    except OSError:
        return  # the next run measures again


def _read_trials(file: Path) -> list[Trial]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return [Trial.from_dict(values) for values in content["trials"]]


def _run(command: Sequence[str], log: Path, *, timeout: float) -> str:
    """Run the trial, and say how it ended where it did not measure everything."""
    with log.open("w", encoding="utf-8") as file:
        try:
            code = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=child_environment(),
                timeout=timeout,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return f"no time was left of the {timeout:.0f} s (capture.auto.timeout)"
    said = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return f"the trial ended with code {code}: {said[-1] if said else 'it said nothing'}"
