"""A fit that is made to be watched: as long as somebody looks, and nothing of it is kept."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import lightning as L
import torch

from lucid_yolo.config.schema import RootConfig
from lucid_yolo.engine.auto import settle
from lucid_yolo.engine.console import RunConsole
from lucid_yolo.engine.fit import FitOutcome, run_fit
from lucid_yolo.engine.pictures import PictureWriter
from lucid_yolo.engine.prepare import Prepared
from lucid_yolo.engine.run_dir import claim
from lucid_yolo.engine.timing import FitTiming


def shortened(root: RootConfig, steps: int) -> RootConfig:
    """A run of at least so many steps that is not validated before its end and writes nothing beside."""
    trainer = replace(
        root.trainer, max_epochs=max(root.trainer.max_epochs, steps + 1), val_every=steps + 2, max_steps=None
    )
    logger = replace(root.logger, csv=False, tensorboard=False, pictures=False, progress=False, extra=[])
    return replace(root, trainer=trainer, logger=logger, resume=None)


def run_short_fit(prepared: Prepared, watcher: L.Callback) -> FitOutcome:
    """Train in a directory that is thrown away.

    Args:
        prepared: the run.
        watcher: ends the fit (``FitStopped``) when it has seen enough.

    Raises:
        RunError: the fit failed.
    """
    with TemporaryDirectory(prefix="lucid-yolo-") as scratch:
        run_dir = claim(Path(scratch) / "run")
        pictures = PictureWriter()
        with RunConsole(run_dir.log) as console:
            console.print(prepared.plan.render())
            prepared.plan.warn()
            try:
                settled = settle(prepared, console)
                return run_fit(settled, run_dir, console, FitTiming(started=time.perf_counter()), pictures, [watcher])
            finally:
                pictures.finish()


def synchronise(device: torch.device) -> None:
    """Wait for a device; on a processor nothing runs beside the host."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
