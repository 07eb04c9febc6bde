"""The fit itself: loaders, module, callbacks, Lightning's loop, and the ways out of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import lightning as L
import torch

from lucid_yolo.config.errors import RunError
from lucid_yolo.config.schema import PrefetchName
from lucid_yolo.data.loader import TrainLoader, ValLoader
from lucid_yolo.engine import build, report
from lucid_yolo.engine.cache import open_training_pictures
from lucid_yolo.engine.callbacks import ClockAfterEpoch, Saver, StepReader, Validator
from lucid_yolo.engine.checkpoint import read_checkpoint
from lucid_yolo.engine.console import RunConsole
from lucid_yolo.engine.datamodule import TrainData
from lucid_yolo.engine.environment import numeric_settings
from lucid_yolo.engine.evaluate import score
from lucid_yolo.engine.images import choose_image_path
from lucid_yolo.engine.interrupt import FitStopped, StopSignal
from lucid_yolo.engine.metrics_log import MetricsLog
from lucid_yolo.engine.module import TrainingModule
from lucid_yolo.engine.pictures import NUM_BATCHES, BatchPictures, PictureWriter
from lucid_yolo.engine.plan import model_line
from lucid_yolo.engine.prefetch import prefetch_outcome
from lucid_yolo.engine.prepare import Prepared
from lucid_yolo.engine.progress import Progress
from lucid_yolo.engine.run_dir import RunDir
from lucid_yolo.engine.step_parts import StepParts
from lucid_yolo.engine.timing import FitTiming
from lucid_yolo.nn.complexity import Deployable, count
from lucid_yolo.perf.plan import RunPlan
from lucid_yolo.tasks.base import Task

CPU_ALLOCATOR = "DefaultCPUAllocator"
"""What torch's errors call the host's memory."""


@dataclass(frozen=True)
class FitOutcome:
    """How a fit ended.

    Attributes:
        status: "finished" or "interrupted".
        saved: whether the state of the very end was saved.
        seconds: from the start of the loop to its end.
        best_epoch: epoch of the best checkpoint, from 1; None when none was validated.
        out_of_patience: whether ``trainer.patience`` ended the fit.
        parameters: parameters of both branches.
        flops: operations of the deployed branch.
        plan: what was active after a look at what was built, and what happened.
    """

    status: str
    saved: bool
    seconds: float
    best_epoch: int | None
    out_of_patience: bool
    parameters: int
    flops: int
    plan: RunPlan


def run_fit(
    prepared: Prepared,
    run_dir: RunDir,
    console: RunConsole,
    timing: FitTiming,
    pictures: PictureWriter,
    extra_callbacks: Sequence[L.Callback] = (),
    *,
    told: Callable[[RunPlan], None] = lambda plan: None,
) -> FitOutcome:
    """Train until the last epoch or until the user stops it.

    Args:
        prepared: the run.
        run_dir: where its files go.
        console: where it prints.
        timing: its clock.
        pictures: who draws.
        extra_callbacks: the user's, called before ours.
        told: hears at the end what was active and what happened, also when the fit fails.

    Raises:
        RunError: the loss was not finite, or memory ran out.
    """
    config, task, splits = prepared.config, prepared.task, prepared.splits
    cuda = prepared.device.type == "cuda"
    L.seed_everything(config.seed, workers=False, verbose=False)
    source = open_training_pictures(prepared, console)
    images = choose_image_path(prepared.plan, config.on_unmet)
    train_loader, val_loader = build.build_loaders(
        config,
        splits,
        num_workers=prepared.workers.count,
        rows=prepared.rows,
        cuda=cuda,
        pictures=source.pictures,
        colour=images.workers,
        prefetch=PrefetchName(str(prepared.plan["prefetch"].active)),
    )
    module = build.build_module(
        config, prepared.plan, task, splits.train, len(train_loader), images.device, prepared.initial
    )
    size = count(cast(Deployable, module.model), config.data.image_size)
    console.print(model_line(config.model.variant, size, splits.train.num_classes, config.data.image_size))
    resume = run_dir.last if config.resume is not None else None
    metrics = MetricsLog(
        run_dir.metrics if config.logger.csv else None,
        run_dir.tensorboard if config.logger.tensorboard else None,
        columns=_columns(task),
        loggers=build.build_loggers(config.logger.extra),
        resume_step=None if resume is None else int(read_checkpoint(resume)["global_step"]),
    )
    drawn = BatchPictures(
        pictures, run_dir=run_dir, index=splits.train, num_batches=NUM_BATCHES if config.logger.pictures else 0
    )
    progress = Progress(console, live=True, silent=not config.logger.progress)
    with StopSignal() as stop, numeric_settings(deterministic=str(prepared.plan["deterministic"].active), cuda=cuda):
        saver, callbacks = _callbacks(prepared, run_dir, train_loader, val_loader, metrics, progress, timing, stop)
        parts = StepParts(prepared.plan, config)
        trainer = build.build_trainer(
            config,
            prepared.plan,
            device=prepared.device,
            callbacks=[*extra_callbacks, parts, *callbacks],
            root=run_dir.root,
        )
        begun = time.perf_counter()
        try:
            trainer.fit(module, datamodule=TrainData(train_loader, drawn.take), ckpt_path=resume, weights_only=True)
            status, saved = "finished", True
        except FitStopped:
            status, saved = "interrupted", True
        except (KeyboardInterrupt, SystemExit):
            status, saved = "interrupted", False
        except torch.OutOfMemoryError:
            raise RunError(_out_of_memory(prepared)) from None
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, MemoryError) or CPU_ALLOCATOR in str(error):
                raise RunError(_out_of_memory(prepared)) from None
            raise
        finally:
            progress.close()
            train_loader.close()
            val_loader.close()
            metrics.close()
            plan = parts.plan.complete(
                {
                    "cache": source.outcome,
                    "prefetch": prefetch_outcome(prepared.plan, train_loader),
                    **images.device.outcomes(),
                    **parts.outcomes(),
                }
            )
            told(plan)
    seconds = time.perf_counter() - begun
    if saver.out_of_patience:
        console.print(
            f"The fit ends before its last epoch: {saver.since_best} validations in a row "
            f"(trainer.patience={config.trainer.patience}) brought no better {task.primary} than "
            f"{saver.best_score:.3f} of epoch {saver.best_epoch}."
        )
    return FitOutcome(
        status=status,
        saved=saved,
        seconds=seconds,
        best_epoch=saver.best_epoch,
        out_of_patience=saver.out_of_patience,
        parameters=size.parameters,
        flops=size.flops,
        plan=plan,
    )


def _callbacks(
    prepared: Prepared,
    run_dir: RunDir,
    train_loader: TrainLoader,
    val_loader: ValLoader,
    metrics: MetricsLog,
    progress: Progress,
    timing: FitTiming,
    stop: StopSignal,
) -> tuple[Saver, list[L.Callback]]:
    """Order matters: read the losses, validate, save, and only then let the clock go on."""
    config, task, splits = prepared.config, prepared.task, prepared.splits

    def score_average(module: TrainingModule) -> dict[str, float]:
        values = score(
            module.ema.module,
            task,
            task.decoders[0],
            val_loader,
            splits.val,
            device=module.device,
            precision=str(prepared.plan["precision"].active),
        )
        return {f"val/{name}": value for name, value in values.items()}

    reader = StepReader(
        loader=train_loader,
        index=splits.train,
        metrics=metrics,
        progress=progress,
        timing=timing,
        run_dir=run_dir,
        part_names=task.part_names,
    )
    validator = Validator(
        score=score_average,
        primary=f"val/{task.primary}",
        metrics=metrics,
        progress=progress,
        every=config.trainer.val_every,
    )
    saver = Saver(
        run_dir=run_dir,
        info=build.model_info(config, splits.train),
        validator=validator,
        stop=stop,
        patience=config.trainer.patience,
        save_seconds=config.trainer.save_seconds,
    )
    callbacks: list[L.Callback] = [reader, validator, saver, ClockAfterEpoch(reader)]
    return saver, callbacks


def _columns(task: Task) -> tuple[str, ...]:
    return (
        "train/total",
        *(f"train/{name}" for name in task.part_names),
        "lr",
        "images_per_second",
        "data_wait_share",
        "gpu_mib",
        *(f"val/{name}" for name in task.metric_names),
    )


def _out_of_memory(prepared: Prepared) -> str:
    data = prepared.config.data
    smaller = max(1, data.batch_size // 2)
    where = "The GPU" if prepared.device.type != "cpu" else "The machine"
    devices = prepared.plan.machine.cuda_devices
    total = f" ({devices[0].memory / report.MIB:.0f} MiB in all)" if devices else ""
    return (
        f"{where} ran out of memory{total} at data.batch_size={data.batch_size} and "
        f"data.image_size={data.image_size}: set data.batch_size={smaller} trainer.accumulate="
        f"{prepared.config.trainer.accumulate * 2} for the same effective batch, or a smaller data.image_size or model."
    )
