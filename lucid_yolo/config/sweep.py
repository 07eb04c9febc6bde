"""Sweeps: Hydra's sweepers and launchers decide what runs where, every job is a child process of its own.

Jobs that share a process share its allocator, its autotuning caches and its warnings; a measurement must not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from rich.table import Table
from rich.text import Text
from yaml import YAMLError  # type: ignore[import-untyped]

from lucid_yolo.config import record
from lucid_yolo.config.child import child_environment
from lucid_yolo.config.compose import Request
from lucid_yolo.config.errors import ConfigError, RunError
from lucid_yolo.config.loader import CONFIG_NAME, plain
from lucid_yolo.config.outcome import fallen_flags, fell_back
from lucid_yolo.config.show import open_hydra
from lucid_yolo.config.terminal import open_console

MULTIRUN = "hydra.mode=MULTIRUN"
SWEEP_DIR = "hydra.sweep.dir"


def run_sweep(verb: str, request: Request, composed: DictConfig) -> None:
    """Run every job of a sweep.

    Args:
        verb: what each job does; only ``train`` leaves a directory.
        request: the checked overrides, sweeps included.
        composed: their composition with Hydra's node.

    Raises:
        ConfigError: the sweeper refuses the overrides.
        RunError: the sweep's directory is taken, or a job failed (the others have run).
    """
    if verb == "train":
        folder = Path(str(OmegaConf.select(composed, SWEEP_DIR)))
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunError(f"run_dir={folder} exists and is not empty. Choose a new directory for the sweep.")
        try:
            _multirun(verb, request, request.overrides)
        finally:
            if folder.is_dir():
                open_console().print(sweep_table(folder))
        return
    with TemporaryDirectory(prefix="lucid-yolo-") as scratch:  # Hydra insists on a directory
        _multirun(verb, request, record.replace(request.overrides, [record.as_override(SWEEP_DIR, scratch)]))


def sweep_table(folder: Path) -> Table:
    """The runs of a sweep: what sets each apart, how it ended, which flags fell back, score and time.

    Args:
        folder: of the sweep, a numbered directory a run; those without a record are left out.
    """
    runs = [run for path in sorted(folder.iterdir(), key=_in_order) if (run := _finished_run(path)) is not None]
    common = set.intersection(*(set(overrides) for _, overrides, _ in runs)) if len(runs) > 1 else set()
    table = Table(title=f"Sweep {folder}", title_justify="left")
    for name in ("run", "overrides", "status", "primary", "fit"):
        table.add_column(name, overflow="fold")
    for name, overrides, summary in runs:
        primary, seconds = summary["metrics"].get("primary"), summary["timing"].get("fit_seconds")
        table.add_row(
            name,
            Text(" ".join(line for line in overrides if line not in common)),
            ", ".join(filter(None, (summary["status"], fell_back(fallen_flags(summary.get("plan", {})))))),
            "" if primary is None else f"{primary:.4f}",
            "" if seconds is None else f"{seconds:.0f} s",
        )
    return table


def _in_order(path: Path) -> tuple[int, str]:
    return int(path.name) if path.name.isdigit() else sys.maxsize, path.name


def _finished_run(path: Path) -> tuple[str, list[str], dict[str, Any]] | None:
    """Name, overrides and summary of a run; None where there is no record that can be read."""
    try:
        summary = json.loads((path / "summary.json").read_text(encoding="utf-8"))
        lines = OmegaConf.to_container(OmegaConf.load(path / "overrides.yaml"))
    except (OSError, ValueError, YAMLError):
        return None
    return path.name, [str(line) for line in lines or () if record.key_of(str(line)) != "run_dir"], summary


def run_job(config: DictConfig, *, verb: str, folders: Sequence[Path]) -> float | None:
    """Run one job of a sweep in a child process; called by Hydra's launcher, perhaps on another machine.

    Args:
        config: the job's configuration, unused: the child composes it again, guarded.
        verb: what the job does.
        folders: the user's folders of option files.

    Returns:
        the primary metric of a training, for sweepers that optimise; None elsewhere.

    Raises:
        RunError: the child failed.
    """
    job = HydraConfig.get()
    overrides = record.replace(job.overrides.task, [])
    if verb == "train":
        overrides = record.replace(overrides, [record.as_override("run_dir", job.runtime.output_dir)])
    # An option file of the user may ask for a sweep; the child is one job of it.
    flags = (*(f"--config-dir={folder}" for folder in folders), "hydra.mode=RUN")
    code = _child([verb, *flags, *overrides], cwd=job.runtime.cwd)
    if code != 0:
        raise RunError(f"Job {job.job.num} of the sweep failed with exit code {code}: {' '.join(overrides)}")
    return _primary_metric(Path(job.runtime.output_dir)) if verb == "train" else None


def _multirun(verb: str, request: Request, overrides: Sequence[str]) -> None:
    try:
        with open_hydra(request.folders, name=verb) as hydra:
            hydra.multirun(
                config_name=CONFIG_NAME,
                task_function=partial(run_job, verb=verb, folders=request.folders),
                overrides=record.replace(overrides, [MULTIRUN]),
            )
    except HydraException as error:
        raise ConfigError([plain(error)]) from None


def _child(arguments: Sequence[str], *, cwd: str) -> int:
    """Run the command line in a child and wait for it, also through Ctrl-C: the child saves its state first."""
    command = [sys.executable, "-m", "lucid_yolo", *arguments]
    with subprocess.Popen(command, cwd=cwd, env=child_environment()) as child:
        try:
            return child.wait()
        except KeyboardInterrupt:
            child.wait()
            raise


def _primary_metric(run_dir: Path) -> float | None:
    summary = run_dir / "summary.json"
    if not summary.is_file():
        return None
    value = json.loads(summary.read_text(encoding="utf-8")).get("metrics", {}).get("primary")
    return None if value is None else float(value)
