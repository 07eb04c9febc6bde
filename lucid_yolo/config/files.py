"""The user's own option files: their defaults, keys and values, named by file and line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, ListConfig, Node, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lucid_yolo.config import keys, problems
from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.loader import GroupTree, Selection, UserFile, plain
from lucid_yolo.config.regions import GROUP, option_text


def load(path: Path) -> DictConfig:
    """Read an option file.

    Raises:
        ConfigError: it is no YAML mapping.
    """
    try:
        content = OmegaConf.load(path)
    except (yaml.YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
        raise ConfigError([f"{path} cannot be read as YAML: {plain(error)}"]) from None
    if not isinstance(content, DictConfig):
        raise ConfigError([f"{path} must hold a mapping of keys to values."])
    return content


def defaults_problems(tree: GroupTree, group: str, option: str) -> Iterator[str]:
    """Check what the defaults list of a user's file selects, before Hydra stumbles over it."""
    path = tree.user_file(group, option)
    if path is None:
        return
    try:
        entries = OmegaConf.to_container(load(path).get("defaults", OmegaConf.create([])), resolve=False)
    except ConfigError as error:
        yield from error.problems
        return
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, Mapping):
            continue
        for written, choice in entry.items():
            target = str(written).removeprefix("override ").removeprefix("optional ").partition("@")[0]
            where = f"{path}:{line_of(path, ('defaults',))}"
            if not target.startswith("/"):
                if tree.is_group(target) and not tree.is_group(f"{group}/{target}"):
                    yield f"{where}: write 'override /{target}: {choice}', a name without '/' is looked up in {group}/."
                continue
            if not tree.is_group(target[1:]):
                yield f"{where}: " + problems.unknown_group(f"{written}: {choice}", target[1:], tree.groups())
                continue
            selected: Any = option_text(choice) if target[1:] == GROUP else choice
            if isinstance(selected, str) and not tree.has_option(target[1:], selected):
                yield f"{where}: " + problems.unknown_option(target[1:], selected, tree.options(target[1:]))


def file_problems(file: UserFile, selection: Selection, groups: tuple[str, ...]) -> Iterator[str]:
    """Check every key and value of a user's file.

    The file of a data set declares its reader's options: they become known.
    """
    try:
        content = load(file.path)
    except ConfigError as error:
        yield from error.problems
        return
    content.pop("defaults", None)
    for name, node in keys.leaves(content):
        key = f"{file.package}.{name}" if file.package else name
        value = _raw(node)
        if file.option.startswith("data/") and key.startswith("data.options."):
            OmegaConf.update(selection.reference, key, value, force_add=True)
            continue
        if key.startswith("hydra.sweeper.params"):
            continue  # the axes of a sweep are checked as overrides
        where = f"{file.path}:{line_of(file.path, keys.split(name))}"
        found = list(problems.of_value(where, key, value, selection, groups))
        yield from found
        if found and file.option.startswith("experiment/") and file.package == "experiment":
            yield f"{file.path}: its first line must be '# @package _global_', else its keys land below experiment."
            return


def sweep_lines(file: UserFile) -> tuple[str, ...]:
    """The axes that a file gives to the sweeper, as overrides."""
    try:
        content = load(file.path)
    except ConfigError:
        return ()
    params = OmegaConf.select(content, "hydra.sweeper.params")
    axes = OmegaConf.to_container(params, resolve=False) if isinstance(params, DictConfig) else {}
    return tuple(f"{key!s}={value}" for key, value in axes.items()) if isinstance(axes, dict) else ()


def line_of(path: Path, parts: tuple[str, ...]) -> int:
    """Line of a key in a YAML file, counted from 1; of its nearest parent when it is not written there itself."""
    node = yaml.compose(path.read_text(encoding="utf-8"))
    line = 1
    for part in parts:
        if not isinstance(node, yaml.MappingNode):
            break
        found = next(((name, value) for name, value in node.value if name.value == part), None)
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line


def _raw(node: Node) -> Any:
    if isinstance(node, (DictConfig, ListConfig)):
        return OmegaConf.to_container(node, resolve=False)
    return node._value()
