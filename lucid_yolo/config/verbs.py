"""The verbs and their settings: flat, typed, and as strict as a run's configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar, get_type_hints

from omegaconf import MISSING, AnyNode, BooleanNode, DictConfig, FloatNode, IntegerNode, Node, OmegaConf

from lucid_yolo.config import keys
from lucid_yolo.config.choice import Choice
from lucid_yolo.config.elsewhere import flag_here
from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.names import did_you_mean, nearest
from lucid_yolo.config.ranges import TEXTS
from lucid_yolo.config.schema import RootConfig
from lucid_yolo.config.workloads import MeasureName, ParityState, workload_names

Settings = TypeVar("Settings")

WORDS: dict[str, Any] = {"null": None, "true": True, "false": False}
MEANING = "meaning"
EXPERIMENT = "experiment"  # the group that is no key of a run
OVERLAP = 200  # pixels, of tiles, unless another is set


@dataclass(frozen=True)
class Verb:
    """What a verb of the command line takes.

    Attributes:
        purpose: one line for the help.
        settings: class of its own settings; None: it has none.
        overrides: whether it takes the overrides of a run.
        groups: the groups that matter to it; empty: all of them.
    """

    purpose: str
    settings: type[Any] | None = None
    overrides: bool = False
    groups: tuple[str, ...] = ()


class SplitName(Choice):
    """Which part of a data set."""

    TRAIN = "train"
    VAL = "val"
    TEST = "test"


class DecodeName(Choice):
    """Which branch answers: one-to-one needs no suppression, one-to-many goes through NMS."""

    ONE_TO_ONE = "one_to_one"
    ONE_TO_MANY = "one_to_many"


def setting(default: Any, meaning: str) -> Any:
    """A setting of a verb: its default, and what it means, for the help."""
    return field(default=default, metadata={MEANING: meaning})


@dataclass
class ValidateConfig:
    """Score a checkpoint on a data set."""

    checkpoint: str = setting(MISSING, "file, or a run directory (its best checkpoint)")
    root: str | None = setting(None, "another place of the data set; null: where the run found it")
    val: str | None = setting(None, "another annotation file of the split; null: that of the run, or found below root")
    val_images: str | None = setting(None, "another image folder; null: likewise")
    split: SplitName = setting(SplitName.VAL, "part of the data set")
    batch_size: int | None = setting(None, "pictures at a time; null: that of the run")
    num_workers: int | None = setting(None, "loader processes; null: that of the run")
    out: str | None = setting(
        None, "folder for the results, new or empty; null: validations/TIME from the command line"
    )
    accelerator: str = setting("auto", "where it computes: auto, cpu, cuda, mps")


@dataclass
class SaveConfig:
    """What ``predict`` writes into its folder."""

    overlay: bool = setting(True, "pictures with boxes drawn")
    json: bool = setting(True, "one file of records")
    txt: bool = setting(False, "one YOLO label file an image")


@dataclass
class PredictConfig:
    """Find objects in images."""

    checkpoint: str = setting(MISSING, "file, or a run directory (its best checkpoint)")
    source: Any = setting(
        MISSING, "image, folder, pattern; from Python also pixels (H, W, 3) uint8 RGB, or a list of these"
    )
    out: str | None = setting(
        None, "folder for the results, new or empty; null: predictions/TIME from the command line"
    )
    confidence: float = setting(0.25, "least confidence of an object")
    decode: DecodeName = setting(DecodeName.ONE_TO_ONE, "branch that answers; one_to_many goes through NMS")
    batch_size: int = setting(16, "pictures at a time, or tiles of them")
    tile: int | None = setting(
        None, "side in pixels of the tiles that larger pictures are cut into; null: every picture is scaled as a whole"
    )
    overlap: int | None = setting(
        None, f"with tile: least overlap of neighbours in pixels, the longest side of an object; null: {OVERLAP}"
    )
    save: SaveConfig = field(default_factory=SaveConfig)
    accelerator: str = setting("auto", "where it computes: auto, cpu, cuda, mps")


@dataclass
class CompareConfig:
    """Compare arms in pairs: run a workload, or read runs that exist."""

    workload: str | None = setting(None, "name of one that comes with the package, or a file PATH.yaml")
    arms: str | None = setting(None, "only these arms of it, separated by commas; the first is the baseline")
    blocks: int | None = setting(None, "how often every arm runs; null: what the workload says")
    compares: MeasureName | None = setting(None, "what the ratio is made of; null: what the workload says")
    out: str | None = setting(None, "its directory; the same command goes on with it; null: comparisons/TIME")
    timeout: float | None = setting(None, "seconds a run may take")
    keep_checkpoints: bool = setting(False, "whether the runs keep their weights, which a measurement does not need")
    book: str | None = setting(None, "file of a ledger to book the report into")
    parity: ParityState = setting(ParityState.UNKNOWN, "with book: whether the arms compute the same")
    parity_test: str = setting("", "with book: which tests said so, and at which commit")
    runs: str | None = setting(None, "instead of a workload: a folder of runs that exist, paired by their seed")
    baseline: str | None = setting(None, "with runs: the arm that the others are compared with, such as capture=none")


@dataclass
class ProfileConfig:
    """See where a step's time goes."""

    steps: int = setting(40, "steps that are timed, twice")
    warmup: int = setting(20, "steps before")
    out: str | None = setting(None, "file for the numbers, JSON")


def split_arguments(kind: type, lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part the settings of a verb from the overrides of a run.

    A key of neither belongs to the side that has the nearest name, which then refuses it.

    Args:
        kind: class of the settings.
        lines: arguments.

    Returns:
        settings, overrides.
    """
    names = {key.partition(".")[0] for key in setting_keys(kind)}
    mine = [line for line in lines if line.partition("=")[0].partition(".")[0] in names or _misspelt(names, line)]
    return mine, [line for line in lines if line not in mine]


def _misspelt(names: set[str], line: str) -> bool:
    """Whether a line means a setting: whether one is about as near as the nearest of these and of all keys of a run."""
    key, equals, _ = line.partition("=")
    run = keys.all_keys(OmegaConf.structured(RootConfig))
    if not equals or not key.isidentifier() or key in (*run, EXPERIMENT) or flag_here(key):
        return False
    return any(name in names for name in nearest(key, (*names, *run, EXPERIMENT)))


def parse_settings(kind: type[Settings], lines: Sequence[str]) -> Settings:
    """Read ``key=value`` arguments. Texts are taken as they are: a path needs no second quotes.

    Args:
        kind: ``ValidateConfig`` or ``PredictConfig``.
        lines: arguments.

    Raises:
        ConfigError: every unknown key (with the nearest name), wrong value and missing key.
    """
    reference = OmegaConf.structured(kind)
    problems: list[str] = []
    values: dict[str, Any] = {}
    for line in lines:
        key, equals, text = line.partition("=")
        if not equals:
            problems.append(f"{line!r} is no setting: write key=value.")
        elif key in values:
            problems.append(f"{key!r} is set more than once: keep one.")
        else:
            node = keys.find(reference, key)
            values[key] = _parse(node, text) if node is not None else text
    return _build(kind, reference, values, problems)


def make_settings(kind: type[Settings], settings: Mapping[str, Any]) -> Settings:
    """Check keyword arguments.

    Args:
        kind: ``ValidateConfig`` or ``PredictConfig``.
        settings: by name; nested ones as a mapping. Paths may be path objects.

    Raises:
        ConfigError: as ``parse_settings``.
    """
    values: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            values.update({f"{name}.{inner}": below for inner, below in value.items()})
        else:
            values[name] = os.fspath(value) if isinstance(value, os.PathLike) else value
    return _build(kind, OmegaConf.structured(kind), values, [])


def setting_values(kind: type, key: str) -> tuple[str, ...]:
    """The texts that a setting may have, for tab completion; empty where they cannot be listed."""
    node = keys.find(OmegaConf.structured(kind), key)
    if isinstance(node, BooleanNode):
        return ("true", "false")
    if key == "workload":
        return workload_names()
    return TEXTS.get(key, keys.choices(node))


def settings_help(kind: type) -> str:
    """One line a setting: how it is written with its default, and what it means."""
    reference, meanings = OmegaConf.structured(kind), dict(_meanings(kind))
    rows = [(f"{key}={_default(node)}", meanings[key], keys.choices(node)) for key, node in keys.leaves(reference)]
    width = max(len(written) for written, _, _ in rows)
    lines = [
        f"  {written:<{width}}  {meaning}" + (f" ({', '.join(choices)})" if choices else "")
        for written, meaning, choices in rows
    ]
    return "\n".join(lines)


def _meanings(kind: type, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every setting with what it means."""
    types = get_type_hints(kind)
    for one in fields(kind):
        if is_dataclass(types[one.name]):
            yield from _meanings(types[one.name], f"{prefix}{one.name}.")
        else:
            yield f"{prefix}{one.name}", one.metadata[MEANING]


def _default(node: Node) -> str:
    """The default as it would be written; one that must be given is a placeholder."""
    if node._is_missing():
        return "VALUE"
    value = node._value()
    return next((word for word, meant in WORDS.items() if value is meant), str(value))


def setting_keys(kind: type) -> tuple[str, ...]:
    """Dotted keys of the settings."""
    return tuple(key for key, _ in keys.leaves(OmegaConf.structured(kind)))


def _parse(node: Node, text: str) -> Any:
    if text in WORDS:
        return WORDS[text]
    for number in (int, float):
        if isinstance(node, (IntegerNode, FloatNode)):
            try:
                return number(text)
            except ValueError:
                continue
    return text


def _build(kind: type[Settings], reference: DictConfig, values: dict[str, Any], problems: list[str]) -> Settings:
    names = [key for key, _ in keys.leaves(reference)]
    free = {key: value for key, value in values.items() if isinstance(keys.find(reference, key), AnyNode)}
    for key, value in values.items():
        if key not in names:
            problems.append(f"There is no setting {key!r}.{did_you_mean(key, names)} Settings: {', '.join(names)}.")
        elif key not in free:
            problem = keys.value_problem(reference, key, value)
            if problem is not None:
                problems.append(f"{key}: {problem}.")
            else:
                OmegaConf.update(reference, key, value)
    absent = sorted(set(map(str, OmegaConf.missing_keys(reference))) - set(free))
    problems += [f"{key} must be given: {key}=VALUE." for key in absent]
    if problems:
        raise ConfigError(problems)
    for key in free:
        OmegaConf.update(reference, key, None)
    settings = OmegaConf.to_object(reference)
    assert is_dataclass(settings)
    assert isinstance(settings, kind)
    for key, value in free.items():
        setattr(settings, key, value)
    return settings
