"""What watches a step on a CUDA device."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch


class ForbidSynchronisation(L.Callback):
    """From the third step on, every synchronisation between a batch's arrival and its updated weights is an error."""

    def __init__(self) -> None:
        self.steps = 0

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step >= 2:
            torch.cuda.set_sync_debug_mode("error")
            self.steps += 1

    def on_train_batch_end(self, *_: Any) -> None:
        torch.cuda.set_sync_debug_mode("default")
