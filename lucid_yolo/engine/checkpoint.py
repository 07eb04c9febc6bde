"""What a checkpoint says about itself, and how a model is rebuilt from one.

A checkpoint is Lightning's, with plain containers only, so that ``torch.load(weights_only=True)`` reads it. The block
``lucid_yolo`` describes the model; the averaged weights are the keys ``ema.module.*`` of ``state_dict``.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from omegaconf import OmegaConf
from torch import Tensor, nn

from lucid_yolo.config.errors import RunError
from lucid_yolo.config.schema import DataConfig, ExifOrientation, ModelConfig
from lucid_yolo.config.tasks import TaskName
from lucid_yolo.data.labels.base import KeypointSpec, LabelSpec
from lucid_yolo.tasks import get_task
from lucid_yolo.tasks.base import Task

BLOCK = "lucid_yolo"
FORMAT = 2
"""Of the network's layout as well: format 1 had stems of other widths."""
AVERAGED = "ema.module."


@dataclass(frozen=True)
class ModelInfo:
    """What has to be known to use a trained model.

    Attributes:
        task: what it was trained for.
        variant: scale of the network.
        depth: depth multiple.
        width: width multiple.
        max_channels: widest layer before scaling.
        class_names: one name a class.
        category_ids: the data set's own id of each class.
        image_size: training canvas in pixels.
        exif_orientation: rule for turned pictures.
        data: the run's data settings as JSON, with absolute paths, so that ``validate`` finds the data again.
        keypoints: fields of a ``KeypointSpec``; None where there are none.
        num_pictures: of the training split, by which a resumed run knows its data; None in older checkpoints.
    """

    task: str
    variant: str
    depth: float
    width: float
    max_channels: int
    class_names: tuple[str, ...]
    category_ids: tuple[int, ...]
    image_size: int
    exif_orientation: str
    data: str
    keypoints: dict[str, Any] | None = None
    num_pictures: int | None = None

    def as_plain(self) -> dict[str, Any]:
        """Turn into containers that a restricted unpickler accepts."""
        return {
            "format": FORMAT,
            **asdict(self),
            "class_names": list(self.class_names),
            "category_ids": list(self.category_ids),
            "keypoints": None if self.keypoints is None else json.loads(json.dumps(self.keypoints)),
        }

    @classmethod
    def from_plain(cls, block: dict[str, Any]) -> ModelInfo:
        """Read the block of a checkpoint."""
        values = {k: v for k, v in block.items() if k in cls.__dataclass_fields__}
        values["class_names"] = tuple(values["class_names"])
        values["category_ids"] = tuple(values["category_ids"])
        return cls(**values)

    @property
    def spec(self) -> LabelSpec:
        """What the labels of its data ask of a network."""
        return LabelSpec(len(self.class_names), None if self.keypoints is None else _keypoints(self.keypoints))

    def model_config(self) -> ModelConfig:
        """The scale as a configuration."""
        return ModelConfig(variant=self.variant, depth=self.depth, width=self.width, max_channels=self.max_channels)

    def data_config(self) -> DataConfig:
        """The data settings of the run."""
        settings = OmegaConf.merge(OmegaConf.structured(DataConfig), json.loads(self.data))
        data = OmegaConf.to_object(settings)
        assert isinstance(data, DataConfig)
        return data


def _keypoints(block: dict[str, Any]) -> KeypointSpec:
    """Key points from the plain containers of a checkpoint."""
    flip, sigmas = block["flip"], block["sigmas"]
    return KeypointSpec(
        names=tuple(block["names"]),
        skeleton=tuple((int(a), int(b)) for a, b in block["skeleton"]),
        flip=None if flip is None else tuple(flip),
        sigmas=None if sigmas is None else tuple(sigmas),
    )


@dataclass(frozen=True)
class TrainedModel:
    """A model ready for use.

    Attributes:
        model: network with the averaged weights, in evaluation mode.
        task: its task.
        info: classes, size, rules.
        path: where it came from.
    """

    model: nn.Module
    task: Task
    info: ModelInfo
    path: Path

    @property
    def exif_orientation(self) -> ExifOrientation:
        """Rule for turned pictures."""
        return ExifOrientation(self.info.exif_orientation)


def read_checkpoint(path: Path, *, key: str = "checkpoint") -> dict[str, Any]:
    """Read a checkpoint of this project.

    Args:
        path: file, or a run directory (its best checkpoint).
        key: what the user named it by, for messages.

    Raises:
        RunError: no such file, not a checkpoint, or not one of this project.
    """
    if path.is_dir():
        folder = path / "checkpoints"
        path = folder / "best.ckpt"
        if not path.exists() and (folder / "last.ckpt").exists():
            raise RunError(
                f"{key}={folder.parent}: that run was not validated yet, so it has no best.ckpt. "
                f"Name its last state: {key}={folder / 'last.ckpt'}."
            )
    if not path.exists():
        raise RunError(f"{key}={path}: no such file. A run keeps its own in <run_dir>/checkpoints/best.ckpt.")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise RunError(f"{key}={path} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # a damaged file fails anywhere in the reader
        raise RunError(
            f"{key}={path} cannot be read as a checkpoint of this project: {_why_unreadable(path, str(error))}. "
            "Name a run directory of lucid_yolo, or a file of its checkpoints/; those of other projects do not fit."
        ) from None
    if not isinstance(content, dict) or BLOCK not in content or "state_dict" not in content:
        raise RunError(f"{key}={path} was not written by lucid_yolo: it has no block '{BLOCK}'.")
    found = content[BLOCK].get("format")
    if found != FORMAT:
        raise RunError(
            f"{key}={path} has format {found!r}, and this version reads format {FORMAT}: the networks of the two have "
            "other shapes. Use it with the version that wrote it, or train anew."
        )
    return content


def averaged_weights(content: dict[str, Any]) -> dict[str, Tensor]:
    """The averaged weights of a checkpoint that was read, by their names in the network."""
    return {k.removeprefix(AVERAGED): v for k, v in content["state_dict"].items() if k.startswith(AVERAGED)}


def load_model(path: Path, *, device: torch.device) -> TrainedModel:
    """Rebuild the averaged model of a checkpoint.

    Args:
        path: checkpoint file, or a run directory (its best checkpoint).
        device: where to put it.

    Raises:
        RunError: see ``read_checkpoint``.
    """
    content = read_checkpoint(path)
    info = ModelInfo.from_plain(content[BLOCK])
    task = get_task(TaskName(info.task))
    model = task.build_model(info.model_config(), info.spec)
    try:
        model.load_state_dict(averaged_weights(content))
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise RunError(f"checkpoint={path} does not fit the model it describes: {reason}") from None
    return TrainedModel(model=model.to(device).eval().requires_grad_(False), task=task, info=info, path=path)


def _why_unreadable(path: Path, message: str) -> str:
    """What torch's reader means, in a few words: its own advice is to trust the file."""
    if path.is_file() and path.stat().st_size == 0:
        return "it is empty"
    if "PytorchStreamReader" in message:
        return "it is damaged, or only a part of the file"
    if "Unsupported global" in message or "GLOBAL" in message:
        return "it holds objects of Python code, which this project never saves and does not load"
    return "it is no file that torch has saved"


class CheckpointFiles(TorchCheckpointIO):
    """Writes a checkpoint where it belongs; the trainer's own way leads through the system's temporary folder."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Serialise, then write: a full disk is an error of the operating system, not one of the serialiser.

        Raises:
            OSError: the file cannot be written.
        """
        buffer = io.BytesIO()
        torch.save(checkpoint, buffer)
        try:
            with Path(path).open("wb") as file:
                file.write(buffer.getbuffer())
        except OSError as error:
            error.filename = str(path)  # a full disk does not say whose
            raise


def save_atomically(trainer: L.Trainer, path: Path, *, also: Path | None = None) -> None:
    """Write a checkpoint beside its place and rename it there, so that a crash never leaves half a file.

    Args:
        trainer: of the run.
        path: of the checkpoint.
        also: a second name of it, given first: where a run dies between the two, resuming from ``path`` repeats it.
    """
    partial = path.with_suffix(".partial")
    with _removed_on_failure(partial):
        trainer.save_checkpoint(partial, weights_only=False)
        if also is not None:
            _copy_atomically(partial, also)
        os.replace(partial, path)


def _copy_atomically(source: Path, target: Path) -> None:
    """Give a finished checkpoint a second name, by link where the file system can."""
    partial = target.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with _removed_on_failure(partial):
        try:
            os.link(source, partial)
        except OSError:
            partial.write_bytes(source.read_bytes())
        os.replace(partial, target)


@contextmanager
def _removed_on_failure(partial: Path) -> Iterator[None]:
    """Leave no half file behind: on a full disk that is room for the reason."""
    try:
        yield
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
