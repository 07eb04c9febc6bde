"""From overrides to a typed configuration: guard, composition, resumption. No composition leaves anything behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from lucid_yolo.config import keys, record
from lucid_yolo.config.edits import mapping_problems, reference_problem, type_problems, unknown_key
from lucid_yolo.config.errors import ConfigError, RunError
from lucid_yolo.config.guard import check_overrides
from lucid_yolo.config.loader import GroupTree, package_tree, plain
from lucid_yolo.config.paths import resolve_user_path
from lucid_yolo.config.regions import in_order
from lucid_yolo.config.schema import KINDS, RootConfig
from lucid_yolo.config.validate import root_problems

SEARCH_PATH = "hydra.searchpath"
FIXED = ("data.root", "model.init_from")  # paths that are made absolute where a run is composed
SPLITS = ("train", "val", "test")
PATHS = (*FIXED, "run_dir", "resume", *(f"data.{split}{kind}" for kind in ("", "_images") for split in SPLITS))


@dataclass(frozen=True)
class Request:
    """What a user asks for, taken apart.

    Attributes:
        overrides: without ``resume`` and the search path.
        folders: the user's folders of option files, absolute.
        resume: run directory to continue, absolute; None for a new run.
    """

    overrides: tuple[str, ...]
    folders: tuple[Path, ...]
    resume: Path | None

    def lines(self) -> list[str]:
        """Overrides that compose to the same again, from any directory."""
        folders = [f"file://{folder}" for folder in self.folders]
        return [*([record.as_override(SEARCH_PATH, folders)] if folders else []), *self.overrides]


def compose(overrides: Sequence[str] = (), *, config_dir: str | None = None) -> DictConfig:
    """Compose the configuration of a run.

    Args:
        overrides: as on the command line, such as ``["model=s", "trainer.max_epochs=5"]``; ``resume=DIRECTORY``
            continues a run.
        config_dir: a folder with further option files, relative to the working directory.

    Returns:
        typed, closed configuration; ``run_dir`` and the paths of ``FIXED`` are absolute, ``overrides`` is its own
        record.

    Raises:
        ConfigError: everything that is wrong with the overrides and with the user's option files.
        RunError: there is nothing to resume.
    """
    check_lines(overrides)
    if not isinstance(config_dir, (str, PathLike, NoneType)):
        raise ConfigError([f"config_dir must be a folder, found {config_dir!r}."])
    return compose_request(read_request(overrides, config_dirs=[config_dir] if config_dir is not None else []))


def check_lines(overrides: object) -> None:
    """Check that something handed over from Python is a list of texts.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(overrides, str):
        raise ConfigError([f"Overrides are a list of texts: write [{overrides!r}]."])
    if not isinstance(overrides, Sequence) or not all(isinstance(line, str) for line in overrides):
        raise ConfigError([f"Overrides are a list of texts, such as ['model=s', 'seed=5'], found {overrides!r}."])


def compose_resume(run_dir: str | Path, overrides: Sequence[str] = ()) -> DictConfig:
    """Compose the configuration that continues a run: what it was composed from, then new overrides.

    Values that have changed since (a new default, an edited option file, another working directory) are taken from
    the record of the run.

    Args:
        run_dir: directory of the run.
        overrides: changes, such as ``["trainer.max_epochs=200"]``.

    Raises:
        RunError: no run is kept there.
        ConfigError: an override is wrong, or changes what a resumed run must keep.
    """
    return compose_request(dataclasses.replace(read_request(overrides), resume=resolve_user_path(run_dir)))


def compose_request(request: Request) -> DictConfig:
    """Compose what was asked for; see ``compose``."""
    if request.resume is None:
        return finish(compose_with_hydra(request, multirun=False), request)
    saved, saved_config = read_record(request.resume)
    base = compose_request(saved)
    changed = record.differences(saved_config, record.values(base))
    kept = {key: old for key, (old, _) in changed.items() if key in saved_config}  # a key may be younger than the run
    unchanged = record.replace(saved.overrides, [record.as_override(key, value) for key, value in kept.items()])
    new = [line for line in request.overrides if record.key_of(line) != "run_dir"]
    asked = Request(tuple(record.replace(unchanged, new)), saved.folders or request.folders, None)
    config = compose_request(asked)
    changes = record.differences(saved_config, record.values(config))
    refused = [f"{key} from {old!r} to {now!r}" for key, (old, now) in changes.items() if record.is_frozen(key)]
    if len(new) != len(request.overrides):
        refused.append("run_dir, a resumed run keeps its directory")
    if refused:
        raise ConfigError(
            [f"resume={request.resume}: a resumed run cannot change {'; '.join(refused)}. Start a new run."]
        )
    config.run_dir = config.resume = str(request.resume)
    return config


def compose_with_hydra(request: Request, *, multirun: bool) -> DictConfig:
    """Guard and compose, Hydra's own node included and nothing finished.

    Raises:
        ConfigError: everything that is wrong.
    """
    tree = GroupTree(request.folders) if request.folders else package_tree()
    check_overrides(request.overrides, tree=tree, multirun=multirun)
    return tree.compose(request.overrides, multirun=multirun)


def finish(config: DictConfig, request: Request) -> DictConfig:
    """Make a composition independent of Hydra, the clock and the working directory."""
    with flag_override(config, ["struct", "readonly"], False):
        config.pop("hydra", None)
    try:
        if config.run_dir == "":
            raise ConfigError(["run_dir must name a directory; leave it out for one of the time of the start."])
        config.run_dir = str(resolve_user_path(config.run_dir))
        for key in FIXED:
            if (path := OmegaConf.select(config, key)) is not None:
                OmegaConf.update(config, key, str(resolve_user_path(path)))
        config.overrides = request.lines()
    except OmegaConfBaseException as error:
        raise ConfigError([reference_problem(config, error)]) from None
    return config


def read_request(overrides: Sequence[str], *, config_dirs: Sequence[str | Path] = ()) -> Request:
    """Take an override list apart.

    Args:
        overrides: as on the command line.
        config_dirs: further folders with option files.

    Raises:
        ConfigError: the search path names something else than folders.
    """
    rest = [in_order(_with_plain_path(line)) for line in overrides]
    folders = [resolve_user_path(folder) for folder in config_dirs]
    for value in _take(rest, SEARCH_PATH):
        entries = value if isinstance(value, list) else [value]
        if any(not isinstance(entry, str) or "://" in entry.removeprefix("file://") for entry in entries):
            raise ConfigError([f"{SEARCH_PATH} must be a list of folders, found {value!r}."])
        folders += [resolve_user_path(entry.removeprefix("file://")) for entry in entries]
    resume = [value for value in _take(rest, "resume") if value is not None]
    if len(resume) > 1:
        raise ConfigError([f"resume is set {len(resume)} times: keep one of them."])
    if "" in resume:
        raise ConfigError(["resume must name the directory of a run, which a run prints as its run_dir."])
    return Request(
        overrides=tuple(rest),
        folders=tuple(dict.fromkeys(folders)),
        resume=resolve_user_path(str(resume[0])) if resume else None,
    )


def read_record(run_dir: Path) -> tuple[Request, dict[str, Any]]:
    """Read what a run was composed from, and its values.

    Raises:
        RunError: no run is kept there, or its record is damaged.
    """
    try:
        lines = OmegaConf.to_container(OmegaConf.load(run_dir / "overrides.yaml"))
        config = OmegaConf.load(run_dir / "config.yaml")
    except FileNotFoundError as error:
        raise RunError(
            f"resume={run_dir}: no run is kept there ({error.filename} does not exist). "
            "Name the directory that a run printed as its run_dir."
        ) from None
    except NotADirectoryError:
        raise RunError(
            f"resume={run_dir}: that is a file. Name the directory that a run printed as its run_dir; its last "
            "state is found in it."
        ) from None
    except (YAMLError, UnicodeDecodeError, OmegaConfBaseException):
        lines = config = None
    if not isinstance(lines, list) or not isinstance(config, DictConfig) or not config:
        raise RunError(f"resume={run_dir}: its overrides.yaml or config.yaml is damaged, the run cannot be continued.")
    saved = read_request([str(line) for line in lines])
    overrides = tuple(line for line in saved.overrides if record.key_of(line) != "run_dir")
    return Request(overrides, saved.folders, None), record.values(config)


def overrides_of(config: DictConfig | RootConfig) -> list[str]:
    """The overrides that compose to a configuration: its own record, and whatever was edited since.

    Raises:
        ConfigError: the record does not compose any more, or an edited value refers to a key that does not exist.
    """
    typed = _typed(config) if isinstance(config, DictConfig) else OmegaConf.structured(config)
    recorded = list(typed.overrides)
    try:
        values = record.values(typed)
    except OmegaConfBaseException as error:
        raise ConfigError([reference_problem(typed, error)]) from None
    edits = record.differences(record.values(compose(recorded)), values)
    return record.replace(recorded, [record.as_override(key, new) for key, (_, new) in edits.items()])


def as_config(config: DictConfig | RootConfig | Sequence[str]) -> DictConfig | RootConfig:
    """Compose what is a list of overrides; anything else comes back as it is."""
    return config if isinstance(config, (DictConfig, RootConfig)) else compose(config)


def to_root(config: DictConfig | RootConfig) -> RootConfig:
    """Turn a composed and perhaps edited configuration into dataclasses, checked.

    Args:
        config: what ``compose`` returned, or a configuration read from a run directory.

    Returns:
        the configuration with absolute paths.

    Raises:
        ConfigError: values that are missing, unknown, out of range or contradictory, all together.
    """
    root = config if isinstance(config, RootConfig) else _to_object(_typed(config))
    if wrong := list(type_problems(root)):
        raise ConfigError(wrong)
    for node, name in ((root, "run_dir"), (root, "resume"), (root.data, "root"), (root.model, "init_from")):
        if getattr(node, name) is not None:
            setattr(node, name, str(resolve_user_path(getattr(node, name))))
    found = root_problems(root)
    if found:
        raise ConfigError(found)
    return root


def _to_object(config: DictConfig) -> RootConfig:
    strays = [key for key in _strays(config) if not key.startswith("data.options.")]
    if strays:
        known = set(keys.all_keys(config)) - set(strays)
        raise ConfigError([unknown_key(key, tuple(known)) for key in strays])
    try:
        missing = sorted(OmegaConf.missing_keys(config))
        if missing:
            raise ConfigError([f"{key} must be given: {key}=VALUE." for key in missing])
        root = OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        raise ConfigError([reference_problem(config, error)]) from None
    assert isinstance(root, RootConfig)
    return root


def _typed(config: DictConfig) -> DictConfig:
    """Give a configuration that was read from a file its types; a composed one has them."""
    if OmegaConf.get_type(config) is RootConfig:
        return config
    schema = OmegaConf.structured(RootConfig)
    try:
        for group, kinds in KINDS.items():
            if (kind := kinds.get(OmegaConf.select(config, f"{group}.name"))) is not None:
                schema[group] = OmegaConf.structured(kind)
        merged = OmegaConf.merge(schema, config)
    except OmegaConfBaseException as error:
        raise ConfigError(list(mapping_problems(schema, config)) or [plain(error)]) from None
    assert isinstance(merged, DictConfig)
    return merged


def _strays(config: DictConfig) -> list[str]:
    """Keys that were forced into a typed mapping."""
    found = []
    for key, _ in keys.leaves(config):
        stem, _, leaf = key.rpartition(".")
        holder = keys.find(config, stem) if stem else config
        kind = OmegaConf.get_type(holder) if holder is not None else None
        if dataclasses.is_dataclass(kind) and leaf not in {field.name for field in dataclasses.fields(kind)}:
            found.append(key)
    return found


def _with_plain_path(line: str) -> str:
    """Quote a path that Hydra's grammar cannot read: ``key=~/path``, and at keys of paths brackets, accents, ``=``.

    A comma separates the values of a sweep, except where there is none.
    """
    key, equals, value = line.partition("=")
    if not equals or value.startswith(("'", '"')):
        return line
    several = "," in value and key != "resume"
    if value.startswith("~/") or (record.key_of(line) in PATHS and not several and not _is_text(line)):
        return record.as_override(key, value)
    return line


def _is_text(line: str) -> bool:
    try:
        return not OverridesParser.create().parse_override(line).is_sweep_override()
    except HydraException:
        return False


def _take(lines: list[str], key: str) -> list[Any]:
    """Remove the overrides of a key and return their values."""
    found = [line for line in lines if record.key_of(line) == key and "=" in line]
    values = []
    for line in found:
        lines.remove(line)
        try:
            values.append(OverridesParser.create().parse_override(line).value())
        except HydraException:
            raise ConfigError([f"{line!r} cannot be read. Quote the path twice: \"{key}='a path'\"."]) from None
    return values
