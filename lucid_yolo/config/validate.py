"""Whether a complete configuration makes sense: ranges, and settings that must agree. Lists every problem."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from omegaconf import OmegaConf

from lucid_yolo.config.paths import conf_dir
from lucid_yolo.config.ranges import range_problem
from lucid_yolo.config.schema import KINDS, ModelConfig, RootConfig

WITHOUT_ROOT = ("shapes",)  # formats that need no folder
SCALE = ("depth", "width", "max_channels")


def root_problems(root: RootConfig) -> tuple[str, ...]:
    """Find all problems of a configuration, one sentence each."""
    ranges = (f"{key}: {problem}." for key, value in _values(root) if (problem := range_problem(key, value)))
    return (*ranges, *_contradictions(root))


def settings_problems(settings: Any) -> tuple[str, ...]:
    """Find values out of range in the settings of ``validate`` or ``predict``, one sentence each."""
    return tuple(f"{key}: {problem}." for key, value in _values(settings) if (problem := range_problem(key, value)))


def _contradictions(root: RootConfig) -> Iterator[str]:
    optimizer = root.optimizer
    strange = False
    for group, kinds in KINDS.items():
        settings = getattr(root, group)
        if type(settings) is not kinds.get(settings.name):
            strange = True
            yield (
                f"{group}.name is {str(settings.name)!r} while the settings are those of {type(settings).__name__}: "
                f"select one with {group}={f' or {group}='.join(kinds)}."
            )
    if not strange and getattr(optimizer, "muon_weight", 1) == 0 and getattr(optimizer, "sgd_weight", 1) == 0:
        yield "optimizer.muon_weight and optimizer.sgd_weight are both 0: matrices would never change."
    if root.data.root is None and root.data.format not in WITHOUT_ROOT:
        yield f"data.root must be given for data.format={root.data.format}: data.root=FOLDER."
    scale = _scale_problem(root.model)
    if scale is not None:
        yield scale
    assigner = root.task.assigner
    if assigner.small_reference < assigner.small_side:
        yield (
            f"task.assigner.small_reference ({assigner.small_reference:g}) is smaller than task.assigner.small_side "
            f"({assigner.small_side:g}): small boxes are widened to it, so it must be at least as large."
        )
    if root.resume is not None and root.resume != root.run_dir:
        yield (
            f"resume is {root.resume!r} while run_dir is {root.run_dir!r}: a resumed run keeps its directory. "
            "Compose with resume=DIRECTORY and without run_dir."
        )


def _scale_problem(model: ModelConfig) -> str | None:
    """The name of one of our own scales stands for its values only; another name is the user's."""
    path = conf_dir() / "model" / f"{model.variant}.yaml"
    if not path.is_file():
        return None
    own = {key: value for key, value in OmegaConf.load(path).items() if key in SCALE}
    found = {key: getattr(model, str(key)) for key in own}
    if found == own:
        return None
    expected, given = (", ".join(f"model.{key}={value:g}" for key, value in side.items()) for side in (own, found))
    return (
        f"model.variant is {model.variant!r}, whose scale is {expected}; found {given}. The variant is only a name: "
        f"select the scale with model={model.variant}, or call your own one otherwise with model.variant=NAME."
    )


def _values(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(node):
        value, key = getattr(node, field.name), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from _values(value, f"{key}.")
        else:
            yield key, value
