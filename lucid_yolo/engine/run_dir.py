"""The run directory: claimed once, never overwritten by another run, written by one process at a time."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lucid_yolo.config.errors import RunError

try:
    import fcntl
except ImportError:  # no such locks on this platform
    fcntl = None  # type: ignore[assignment]

MARKER = ".lucid_yolo_run"
UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO})


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
        run.checkpoints.mkdir(exist_ok=True)
    except FileExistsError:
        raise RunError(
            f"run_dir={path} was taken by another run just now (or is a file). Choose another run_dir."
        ) from None
    except OSError as error:
        raise RunError(f"run_dir={path} cannot be written: {error.strerror}. Choose another run_dir.") from None
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


@contextmanager
def hold(run: RunDir) -> Iterator[None]:
    """Keep other processes from continuing the same run; a process that dies lets go by itself.

    Raises:
        RunError: another process is at it, or the directory cannot be written.
    """
    try:
        marker = (run.root / MARKER).open("r+")
    except OSError as error:
        raise RunError(f"run_dir={run.root} cannot be written: {error.strerror}.") from None
    with marker:
        if fcntl is not None:
            try:
                # A record lock: unlike flock's it does not live on in the loader's forked workers.
                fcntl.lockf(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    raise RunError(
                        f"run_dir={run.root} is in use: another process trains this run at the moment."
                    ) from None
                # some network file systems have no locks: then nothing guards but the user's care
        yield


@contextmanager
def explain_unwritable(run: RunDir) -> Iterator[None]:
    """Turn a full disk and the like into one sentence.

    Raises:
        RunError: a file of the run could not be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        name = error.filename2 or error.filename  # the target, where there are two
        place = f" ({name})" if name is not None else ""
        again = f"lucid-yolo train resume={shlex.quote(str(run.root))}" if run.last.exists() else "another run_dir=PATH"
        raise RunError(
            f"A file could not be written: {error.strerror}{place}. Make room or give access, then go on with: {again}"
        ) from None


def write_text(path: Path, text: str) -> None:
    """Write a file as a whole: a crash or a full disk leaves the old one."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
