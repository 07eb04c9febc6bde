"""The run directory: claimed once, never overwritten by another run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lucid_yolo.config.errors import RunError

MARKER = ".lucid_yolo_run"


@dataclass(frozen=True)
class RunDir:
    """Where the files of a run lie."""

    root: Path

    @property
    def config(self) -> Path:
        """The composed configuration."""
        return self.root / "config.yaml"

    @property
    def overrides(self) -> Path:
        """The overrides that it was composed from, a list of strings."""
        return self.root / "overrides.yaml"

    @property
    def plan(self) -> Path:
        """Which flags were active and why not."""
        return self.root / "plan.json"

    @property
    def summary(self) -> Path:
        """Results under fixed names."""
        return self.root / "summary.json"

    @property
    def metrics(self) -> Path:
        """Curves."""
        return self.root / "metrics.csv"

    @property
    def log(self) -> Path:
        """What was printed."""
        return self.root / "train.log"

    @property
    def tensorboard(self) -> Path:
        """Event files."""
        return self.root / "tensorboard"

    @property
    def pictures(self) -> Path:
        """Pictures of data, curves and predictions."""
        return self.root / "pictures"

    @property
    def checkpoints(self) -> Path:
        """Checkpoints."""
        return self.root / "checkpoints"

    @property
    def last(self) -> Path:
        """The state to continue from."""
        return self.checkpoints / "last.ckpt"

    @property
    def best(self) -> Path:
        """The state with the best validation metric."""
        return self.checkpoints / "best.ckpt"


def claim(path: Path) -> RunDir:
    """Take a directory for a new run by an exclusive create of a marker file.

    An existing empty directory may be taken (Hydra makes one before the program starts).

    Raises:
        RunError: the directory belongs to another run, holds other files, or cannot be written.
    """
    run = RunDir(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if (path / MARKER).exists():
            raise RunError(
                f"run_dir={path} already holds a run. Choose another run_dir, or continue that run with resume={path}."
            )
        if any(path.iterdir()):
            raise RunError(f"run_dir={path} exists and is not empty. Choose a new or an empty directory.")
        os.close(os.open(path / MARKER, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        raise RunError(
            f"run_dir={path} was taken by another run just now (or is a file). Choose another run_dir."
        ) from None
    except OSError as error:
        raise RunError(f"run_dir={path} cannot be written: {error.strerror}. Choose another run_dir.") from None
    run.checkpoints.mkdir(exist_ok=True)
    return run


def reopen(path: Path) -> RunDir:
    """Open the directory of a run that is to be continued.

    Raises:
        RunError: there is no run, or nothing to continue from.
    """
    run = RunDir(path)
    if not (path / MARKER).exists():
        raise RunError(f"resume={path}: no run is kept there. Name the directory that a run printed as its run_dir.")
    if not run.last.exists():
        raise RunError(
            f"resume={path}: the run has no checkpoint yet (it stopped before its first epoch ended). "
            "Start it again with a new run_dir."
        )
    return run
