"""From a configuration and a plan to the objects of a fit; nothing else instantiates what a configuration names."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import hydra
import lightning as L
import torch
from lightning.pytorch.loggers import Logger
from omegaconf import OmegaConf
from torch import Tensor

from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.schema import PrefetchName, RootConfig
from lucid_yolo.data.batch import Batch
from lucid_yolo.data.colour import ColourStage
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.loader import TrainLoader, ValLoader
from lucid_yolo.data.source import Pictures
from lucid_yolo.engine.checkpoint import CheckpointFiles, ModelInfo
from lucid_yolo.engine.initial import InitialWeights
from lucid_yolo.engine.module import TrainingModule
from lucid_yolo.perf.plan import RunPlan
from lucid_yolo.tasks.base import Task

TRAINER_DETERMINISM = {"strict": True, "warn-only": "warn", "off": False}


@dataclass(frozen=True)
class Splits:
    """Both splits of the data set."""

    train: SplitIndex
    val: SplitIndex


def model_info(config: RootConfig, index: SplitIndex) -> ModelInfo:
    """Describe the model for its checkpoints."""
    return ModelInfo(
        task=str(config.task.name),
        variant=config.model.variant,
        depth=config.model.depth,
        width=config.model.width,
        max_channels=config.model.max_channels,
        class_names=index.class_names,
        category_ids=index.category_ids,
        keypoints=None if index.keypoints is None else asdict(index.keypoints),
        num_pictures=len(index),
        image_size=config.data.image_size,
        exif_orientation=config.data.exif_orientation.value,
        data=json.dumps(OmegaConf.to_container(OmegaConf.structured(config.data), enum_to_str=True)),
    )


def build_module(
    config: RootConfig,
    plan: RunPlan,
    task: Task,
    index: SplitIndex,
    batches: int,
    prepare_images: Callable[[Batch], Tensor],
    initial: InitialWeights | None = None,
) -> TrainingModule:
    """Build network, loss and training step.

    Args:
        config: the run.
        plan: what is active.
        task: what is learned.
        index: training split, for its classes.
        batches: batches an epoch.
        prepare_images: turns a batch into what the network reads.
        initial: weights to start from; None: drawn ones.
    """
    model = task.build_model(config.model, index.spec)
    if initial is not None:
        initial.load_into(model)  # before the average is made as a copy
    loss = task.build_loss(config.task, index.spec, config.data.image_size)
    return TrainingModule(
        task=task,
        model=model,
        loss=loss,
        config=config,
        steps_per_epoch=-(-batches // config.trainer.accumulate),
        max_epochs=config.trainer.max_epochs,
        channels_last=bool(plan["channels_last"].active),
        prepare_images=prepare_images,
    )


def build_loaders(
    config: RootConfig,
    splits: Splits,
    *,
    num_workers: int,
    rows: int,
    cuda: bool,
    pictures: Pictures | None,
    colour: ColourStage,
    prefetch: PrefetchName,
) -> tuple[TrainLoader, ValLoader]:
    """Build both loaders; training takes its pictures from a cache where there is one."""
    train = TrainLoader(
        splits.train,
        config.data,
        seed=config.seed,
        max_epochs=config.trainer.max_epochs,
        num_workers=num_workers,
        pin_memory=cuda,
        rows=rows,
        pictures=pictures,
        colour=colour,
        prefetch=prefetch,
    )
    val = ValLoader(splits.val, config.data, num_workers=num_workers, pin_memory=cuda)
    return train, val


def build_trainer(
    config: RootConfig, plan: RunPlan, *, device: torch.device, callbacks: Sequence[L.Callback], root: Path
) -> L.Trainer:
    """Build Lightning's loop with our callbacks only."""
    return L.Trainer(
        accelerator="gpu" if device.type == "cuda" else device.type,
        devices=1,
        precision=str(plan["precision"].active),  # type: ignore[arg-type]
        max_epochs=config.trainer.max_epochs,
        max_steps=-1 if config.trainer.max_steps is None else config.trainer.max_steps,
        accumulate_grad_batches=config.trainer.accumulate,
        deterministic=TRAINER_DETERMINISM[str(plan["deterministic"].active)],  # type: ignore[arg-type]
        callbacks=list(callbacks),
        plugins=[CheckpointFiles()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        benchmark=False,
        default_root_dir=root,
    )


def build_loggers(extra: Sequence[Any]) -> list[Any]:
    """Instantiate the additional Lightning loggers of ``logger.extra``.

    Raises:
        ConfigError: one of them cannot be made.
    """
    loggers = []
    for position, settings in enumerate(extra):
        try:
            logger = hydra.utils.instantiate(settings)
        except hydra.errors.InstantiationException as error:
            reason = str(error).splitlines()[0].partition(", set env var")[0]
            raise ConfigError([f"logger.extra[{position}] cannot be built: {reason}"]) from None
        if not isinstance(logger, Logger):
            raise ConfigError(
                [
                    f"logger.extra[{position}] is no Lightning logger but a {type(logger).__name__}: "
                    "name a class of lightning.pytorch.loggers as its _target_."
                ]
            )
        loggers.append(logger)
    return loggers
