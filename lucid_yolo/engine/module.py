"""The training step: scale, network, assignment, losses; clip, update and average follow in Lightning's hooks.

From the uint8 batch to the updated weights nothing is read on the host and no shape depends on data (16-mixed has the
one read of its loss scaler). So all of it can be one recording: it is then complete when ``training_step`` returns, and
the hooks that follow find nothing left to do.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import lightning as L
import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor, nn

from lucid_yolo.config.schema import RootConfig
from lucid_yolo.data.batch import Batch, Targets
from lucid_yolo.engine.step_log import StepLog
from lucid_yolo.nn.cast import CastOnce
from lucid_yolo.optim.build import build_optimizer
from lucid_yolo.optim.clip import clip_gradients
from lucid_yolo.optim.ema import Ema
from lucid_yolo.optim.schedule import lr_factor
from lucid_yolo.perf.objective import Mark, Objective, StepLosses, unheard
from lucid_yolo.tasks.base import Task


class TrainingModule(L.LightningModule):
    """Model, averaged model, loss and optimizer of one fit.

    Args:
        task: what is learned.
        model: the network.
        loss: its objective, with a 0-d buffer ``alpha``.
        config: the run.
        steps_per_epoch: weight updates an epoch.
        max_epochs: planned epochs.
        channels_last: memory layout of images and weights.
        prepare_images: turns a batch into what the network reads, (B, 3, S, S).
    """

    def __init__(
        self,
        *,
        task: Task,
        model: nn.Module,
        loss: nn.Module,
        config: RootConfig,
        steps_per_epoch: int,
        max_epochs: int,
        channels_last: bool,
        prepare_images: Callable[[Batch], Tensor],
    ) -> None:
        super().__init__()
        self.task = task
        self.config = config
        self.steps_per_epoch = steps_per_epoch
        self.max_epochs = max_epochs
        self.prepare_images = prepare_images
        self.memory_format = torch.channels_last if channels_last else torch.contiguous_format
        self.model: nn.Module = model.to(memory_format=self.memory_format)  # type: ignore[call-overload]
        self.ema = Ema(self.model, decay=config.trainer.ema.decay, ramp=config.trainer.ema.ramp)
        self.loss = loss
        self.objective: Callable[[Tensor, Targets, Mark], Any] = self.eager_objective()
        self.clip: Callable[..., Tensor] = clip_gradients
        self.step: Callable[[Batch, Mark], StepLosses] = self.compute_losses
        self._complete = False  # whether the running step was computed to its end, update and average included
        self.step_log: StepLog | None = None
        self.recent_images: deque[Tensor] = deque(maxlen=config.trainer.log_every)
        self._finite: Tensor | None = None  # the losses since the last update
        self._gradients_finite: Tensor | None = None  # the gradients since the last reading
        self._allowed: Tensor | None = None  # whether the update of this step is made; one place for the whole fit
        self._alpha_epoch = -1
        self.mark: Mark = unheard  # told the name of each part of a step when it ends

    def eager_objective(self) -> Objective:
        """Network and loss as they are computed unless something is recorded or compiled."""
        return Objective(CastOnce(self.model), self.loss)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Build the optimizer; the schedule is a pure function of the step, see ``on_train_batch_start``."""
        return build_optimizer(self.model, self.config.optimizer, self.loss)

    def on_fit_start(self) -> None:
        """Put the buffers of the loop on the device."""
        self.step_log = StepLog(self.config.trainer.log_every, 1 + len(self.task.part_names), self.device)
        self._finite = torch.ones((), dtype=torch.bool, device=self.device)
        self._gradients_finite = torch.ones((), dtype=torch.bool, device=self.device)
        self._allowed = torch.ones((), dtype=torch.bool, device=self.device)
        self._alpha_epoch = -1

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Set what depends on the step or the epoch: learning rate and branch weight."""
        factor = self.lr_factor()
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.optimizer.lr * factor
        if self._alpha_epoch != self.current_epoch:
            self._alpha_epoch = self.current_epoch
            self.task.set_epoch(self.loss, self.current_epoch, self.max_epochs)
        self.recent_images.append(batch.indices)

    def lr_factor(self) -> float:
        """Factor of the learning rate at the next update."""
        settings = self.config.optimizer
        total = self.steps_per_epoch * self.max_epochs
        warmup = min(round(settings.warmup_epochs * self.steps_per_epoch), max(total - 1, 0))
        return lr_factor(self.global_step, total_steps=total, warmup_steps=warmup, final_ratio=settings.final_lr_ratio)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer itself, without Lightning's wrapper."""
        return self.trainer.optimizers[0]

    # The stages of a step. None reads the device: they may be called while a recording is made.

    def compute_losses(self, batch: Batch, mark: Mark = unheard) -> StepLosses:
        """Scale, network, assignment and losses; ``mark`` hears when the network is done."""
        losses = self.objective(self.prepare_images(batch), batch.targets, mark)
        assert self._finite is not None
        self._finite.logical_and_(losses.total.detach().abs() < math.inf)  # False for NaN; isfinite launches twice
        return StepLosses(losses.total, losses.parts)

    def clip_gradients_of(self, optimizer: torch.optim.Optimizer) -> None:
        """Clip by the global norm and hold the update back where loss or norm is not finite."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        norm = self.clip(parameters, self.config.trainer.clip_norm)
        assert self._finite is not None
        assert self._allowed is not None
        if self.trainer.precision == "16-mixed":  # there the loss scaler skips overflown gradients by itself
            self._allowed.copy_(self._finite)
        else:
            assert self._gradients_finite is not None
            finite = norm < math.inf  # False for NaN
            self._gradients_finite.logical_and_(finite)
            torch.logical_and(self._finite, finite, out=self._allowed)
        optimizer.update_allowed = self._allowed  # type: ignore[attr-defined]

    def average(self) -> None:
        """Let the averaged weights follow the updated ones."""
        self.ema.update(self.model, allowed=self.optimizer.update_allowed)  # type: ignore[attr-defined]
        assert self._finite is not None
        self._finite.fill_(True)

    def complete_step(self, batch: Batch) -> StepLosses:
        """All stages, from a batch to the averaged weights, without Lightning between them."""
        optimizer = self.optimizer
        optimizer.zero_grad()
        losses = self.compute_losses(batch)
        with torch.autocast(self.device.type, enabled=False):  # it holds for the forward pass alone
            losses.total.backward()  # type: ignore[no-untyped-call]
            self.clip_gradients_of(optimizer)
            optimizer.step()
            self.average()
        return StepLosses(losses.total.detach(), losses.parts.detach(), is_complete=True)

    def changed_by_step(self) -> list[Tensor]:
        """What a step changes in place, its optimizer's buffers apart."""
        flags = (self._finite, self._gradients_finite, self._allowed)
        modules = (self.model, self.loss, self.ema)
        held = (tensor for module in modules for tensor in (*module.parameters(), *module.buffers()))
        return [*held, *(flag for flag in flags if flag is not None)]

    # Lightning's hooks.

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Compute the loss of one batch, or all of its step."""
        self.mark("loop")
        losses = self.step(batch, self.mark)
        self._complete = losses.is_complete
        assert self.step_log is not None
        self.step_log.append(losses.total.detach(), losses.parts)
        self.mark("step" if self._complete else "loss")
        return losses.total

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
        """Forget the gradients of the last update."""
        if not self._complete:
            super().optimizer_zero_grad(epoch, batch_idx, optimizer)

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Compute the gradients."""
        if self._complete:
            return
        self.mark("loop")
        super().backward(loss, *args, **kwargs)
        self.mark("backward")

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip, before the update."""
        self.clip_gradients_of(optimizer)
        self.mark("clip")

    def gradients_finite(self) -> bool:
        """Read and forget whether every gradient since the last reading was finite (16-mixed: not looked at)."""
        assert self._gradients_finite is not None
        finite = bool(self._gradients_finite)
        self._gradients_finite.fill_(True)
        return finite

    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: torch.optim.Optimizer | LightningOptimizer,
        optimizer_closure: Callable[[], Any] | None = None,
    ) -> None:
        """Compute the gradients (the closure does), update the weights, then their average."""
        assert optimizer_closure is not None
        loss = optimizer_closure()
        if self._complete:
            return
        super().optimizer_step(epoch, batch_idx, optimizer, lambda: loss)
        self.mark("optimizer")
        self.average()
        self.mark("ema")
