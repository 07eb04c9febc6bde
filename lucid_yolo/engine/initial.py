"""Fine-tuning: a new training that starts from the averaged weights of a checkpoint (``model.init_from``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lucid_yolo.config import record
from lucid_yolo.config.errors import RunError
from lucid_yolo.config.paths import conf_dir, resolve_user_path
from lucid_yolo.config.schema import RootConfig
from lucid_yolo.data.labels.base import LabelSpec
from lucid_yolo.engine.checkpoint import BLOCK, ModelInfo, averaged_weights, read_checkpoint
from lucid_yolo.nn.scale import Scale
from lucid_yolo.tasks import get_task

KEY = "model.init_from"
SHOWN = 5  # classes that a sentence names


@dataclass(frozen=True)
class Donor:
    """A checkpoint that a training starts from.

    Attributes:
        path: file or run directory, as the user named it.
        info: what the checkpoint says about itself.
        weights: its averaged weights by name.
    """

    path: Path
    info: ModelInfo
    weights: Mapping[str, Tensor]


@dataclass(frozen=True)
class InitialWeights:
    """What of a checkpoint fits a new network, and what stays as it was drawn.

    Attributes:
        donor: the checkpoint.
        whole: names of the tensors that are taken over.
        by_class: names of the tensors with a row a class, of which the rows of ``known`` are taken over.
        fresh: names of the tensors that stay, because the checkpoint has none of that name and shape.
        known: classes whose rows are taken over, as (row of the new network, row of the checkpoint).
        class_names: classes of the new network.
    """

    donor: Donor
    whole: tuple[str, ...]
    by_class: tuple[str, ...]
    fresh: tuple[str, ...]
    known: tuple[tuple[int, int], ...]
    class_names: tuple[str, ...]

    @torch.no_grad()
    def load_into(self, model: nn.Module) -> None:
        """Write the weights into a network of the scale and the classes that this was made for, in place."""
        tensors = model.state_dict()
        for name in self.whole:
            tensors[name].copy_(self.donor.weights[name])
        for name in self.by_class:
            for row, source in self.known:
                tensors[name][row].copy_(self.donor.weights[name][source])

    @property
    def known_names(self) -> tuple[str, ...]:
        """Classes whose rows are taken over."""
        return tuple(self.class_names[row] for row, _ in self.known)

    @property
    def fresh_names(self) -> tuple[str, ...]:
        """Classes whose rows stay as they were drawn."""
        return tuple(name for name in self.class_names if name not in self.known_names)

    def sentence(self) -> str:
        """What is loaded and what is not."""
        count = len(self.whole) + len(self.by_class) + len(self.fresh)
        start = f"Starts from the averaged weights of {self.donor.path}: "
        if len(self.whole) == count:
            return f"{start}all {count} tensors are loaded."
        parts = [f"{len(self.whole)} of {count} tensors are loaded"]
        if self.by_class:
            outputs = f"{len(self.by_class)} class outputs"
            if self.known:
                parts.append(f"{outputs} are loaded for the classes of the same name ({_listed(self.known_names)})")
            if self.fresh_names:
                parts.append(f"{outputs} start fresh for {_listed(self.fresh_names)}")
        if self.fresh:
            parts.append(f"{len(self.fresh)} start fresh ({_listed(self.fresh)})")
        return f"{start}{'; '.join(parts)}."

    def as_dict(self) -> dict[str, Any]:
        """Plain containers for the record of a run."""
        return {
            "path": str(self.donor.path),
            "loaded": len(self.whole),
            "class_outputs": len(self.by_class),
            "fresh": list(self.fresh),
            "classes_loaded": list(self.known_names),
            "classes_fresh": list(self.fresh_names),
        }


def read_donor(config: RootConfig) -> Donor | None:
    """Read the checkpoint that a run starts from; None where it starts from drawn weights or goes on.

    Raises:
        RunError: it cannot be read, or is of another task or scale.
    """
    if config.model.init_from is None or config.resume is not None:
        return None
    path = resolve_user_path(config.model.init_from)
    content = read_checkpoint(path, key=KEY)
    info = ModelInfo.from_plain(content[BLOCK])
    if info.task != config.task.name:
        raise RunError(f"{KEY}={path} was trained for task={info.task}, this run is for task={config.task.name}.")
    theirs, ours = Scale.from_config(info.model_config()), Scale.from_config(config.model)
    if (theirs.depth, theirs.width, theirs.max_channels) != (ours.depth, ours.width, ours.max_channels):
        raise RunError(
            f"{KEY}={path} holds a model of scale {_scale(theirs)}, this run trains {_scale(ours)}. "
            f"Select the scale of the checkpoint ({_selection(theirs)}), or another checkpoint."
        )
    return Donor(path, info, averaged_weights(content))


def match(donor: Donor, config: RootConfig, class_names: Sequence[str], spec: LabelSpec) -> InitialWeights:
    """Decide what of a checkpoint fits the network of a run, by name and shape; where classes differ, class by class.

    Args:
        donor: the checkpoint.
        config: the run.
        class_names: its classes.
        spec: what its labels ask of a network.
    """
    task = get_task(config.task.name)
    with torch.device("meta"):
        model = task.build_model(config.model, spec)
    same_classes = tuple(class_names) == donor.info.class_names
    rows = frozenset(() if same_classes else task.class_rows(model))
    known = tuple(
        (row, donor.info.class_names.index(name))
        for row, name in enumerate(class_names)
        if name in donor.info.class_names
    )
    tensors = {name: tensor.shape for name, tensor in model.state_dict().items()}
    fitting = {name for name, shape in tensors.items() if name in donor.weights and _fits(name, shape, donor, rows)}
    whole, by_class = fitting - rows, fitting & rows
    return InitialWeights(
        donor=donor,
        whole=_in_order(tensors, whole),
        by_class=_in_order(tensors, by_class),
        fresh=_in_order(tensors, tensors.keys() - whole - by_class),
        known=known,
        class_names=tuple(class_names),
    )


def _fits(name: str, shape: torch.Size, donor: Donor, rows: frozenset[str]) -> bool:
    """Whether a tensor has the shape of its namesake; where it has a row a class, whether the rows have."""
    start = 1 if name in rows else 0
    return shape[start:] == donor.weights[name].shape[start:]


def _in_order(tensors: Mapping[str, Any], names: Iterable[str]) -> tuple[str, ...]:
    chosen = set(names)
    return tuple(name for name in tensors if name in chosen)


def _scale(scale: Scale) -> str:
    return f"{scale.variant!r} (depth {scale.depth:g}, width {scale.width:g}, at most {scale.max_channels} channels)"


def _selection(scale: Scale) -> str:
    """Overrides that select a scale: one of ours by its option, one of the user's by its values."""
    if (conf_dir() / "model" / f"{scale.variant}.yaml").is_file():
        return f"model={scale.variant}"
    return " ".join(record.as_override(f"model.{field.name}", getattr(scale, field.name)) for field in fields(scale))


def _listed(names: Sequence[str]) -> str:
    more = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return ", ".join([*names[:SHOWN], *more])
