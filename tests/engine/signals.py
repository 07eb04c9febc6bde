"""Signals that a test sends to a fit."""

from __future__ import annotations

import os
import signal
from typing import Any

import lightning as L


class PressCtrlC(L.Callback):
    """Sends the signal of Ctrl-C to this process after a step."""

    def __init__(self, after_step: int) -> None:
        self.after_step = after_step

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step == self.after_step:
            os.kill(os.getpid(), signal.SIGINT)
