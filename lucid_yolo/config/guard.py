"""The strictness guard: every problem of an override list at once, before Hydra composes.

Hydra stops at the first problem, accepts unknown keys behind ``+`` and ``++``, deletes groups that a typed root then
refills, and lets the last of two choices win. Here each of these is an error with the nearest known name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from lucid_yolo.config import problems
from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.files import defaults_problems, file_problems, sweep_lines
from lucid_yolo.config.loader import GroupTree, Selection, package_tree
from lucid_yolo.config.regions import GROUP, listed, option_text

MAX_SELECTIONS = 64  # combinations of swept groups that are checked before a sweep; its jobs check themselves again


@dataclass(frozen=True)
class Parsed:
    """The readable part of an override list, split by what it addresses.

    Attributes:
        groups: overrides of groups that exist.
        keys: all others.
    """

    groups: tuple[Override, ...]
    keys: tuple[Override, ...]


def check_overrides(overrides: Sequence[str], *, tree: GroupTree | None = None, multirun: bool = False) -> None:
    """Check an override list, and the user's files that it selects.

    Args:
        overrides: as on the command line.
        tree: groups and options; those of the package unless given.
        multirun: sweeps are allowed.

    Raises:
        ConfigError: with every problem.
    """
    tree = package_tree() if tree is None else tree
    found, parsed = _parse(overrides, tree)
    found += _sweep_problems(parsed, multirun=multirun)
    found += _duplicates(parsed)
    sound = []
    for override in parsed.groups:
        own = list(_group_problems(override, tree))
        found += own
        if not own:
            sound.append(override)
    for group in sound:
        for option in _options(group):
            found += defaults_problems(tree, group.key_or_group, option)
    for selection in _selections(sound, tree, found):
        for file in selection.user_files:
            found += file_problems(file, selection, tree.own_groups)
            found += _lines_problems(sweep_lines(file), f"{file.path}: ", tree, selection)
        for override in parsed.keys:
            found += _key_problems(override, tree, selection)
    if found:
        raise ConfigError(tuple(dict.fromkeys(found)))


def _parse(overrides: Sequence[str], tree: GroupTree) -> tuple[list[str], Parsed]:
    parser = OverridesParser.create(config_loader=tree.loader)
    found: list[str] = []
    groups: list[Override] = []
    keys: list[Override] = []
    for line in overrides:
        if "=" not in line and not line.startswith("~"):
            found.append(f"{line!r} is no override: write key=value.")
            continue
        try:
            override = parser.parse_override(line)
            override.config_loader = tree.loader  # glob() looks options up
        except HydraException:
            found.append(
                f"{line!r} cannot be read. Quote values with spaces or special characters twice: \"key='a value'\"."
            )
            continue
        (groups if tree.is_group(override.key_or_group) else keys).append(override)
    return found, Parsed(tuple(groups), tuple(keys))


def _sweep_problems(parsed: Parsed, *, multirun: bool) -> Iterator[str]:
    for override in (*parsed.groups, *parsed.keys):
        if not override.is_sweep_override():
            continue
        key = override.key_or_group
        if not multirun:
            as_list = "" if override in parsed.groups else f", or {key}=[...] for a list, or quotes for a text"
            yield f"{override.input_line!r} names several values: add -m to run each of them{as_list}."
        elif key.startswith("hydra"):
            yield f"{override.input_line!r}: Hydra's own settings cannot be swept."
        elif key == "run_dir":
            yield f"{override.input_line!r}: run_dir cannot be swept, each job gets a directory of its own below it."


def _duplicates(parsed: Parsed) -> Iterator[str]:
    seen: dict[str, list[str]] = {}
    for override in (*parsed.groups, *parsed.keys):
        seen.setdefault(override.key_or_group, []).append(str(override.input_line))
    for key, lines in seen.items():
        if len(lines) > 1:
            yield f"{key!r} is set {len(lines)} times ({', '.join(lines)}): keep one of them."


def _group_problems(override: Override, tree: GroupTree) -> Iterator[str]:
    group, line = override.key_or_group, override.input_line
    in_defaults = group in tree.default_groups
    if override.is_delete():
        yield f"{line!r}: a group cannot be removed. Select one of its options: {_listed(tree, group)}."
        return
    if override.package is not None:
        yield f"{line!r}: write {group}=OPTION without '@{override.package}'."
        return
    if override.is_force_add() or (override.is_add() and in_defaults):
        yield f"{line!r}: {group} always has an option. Select it without '+': {group}=OPTION."
        return
    if not override.is_add() and not in_defaults:
        yield f"{line!r}: {group} is not in the defaults list. Add it with +{group}=OPTION."
        return
    options = _options(override)
    if override.is_sweep_override() and not options:
        yield f"{line!r} selects nothing. Options of {group}: {_listed(tree, group)}."
    for option in options:
        if not tree.has_option(group, option):
            yield problems.unknown_option(group, option, tree.options(group))
        elif (file := tree.hidden_by_package(group, option)) is not None:
            yield f"{file} has the name of an option of the package, which would win. Rename it."


def _options(override: Override) -> tuple[str, ...]:
    """What a group override selects, as text; several in a sweep."""
    if override.is_sweep_override():
        if not override.is_choice_sweep():
            return ("",)
        values, texts = override.sweep_iterator(), override.sweep_string_iterator()
        return tuple(dict.fromkeys(_option(override, *pair) for pair in zip(values, texts, strict=True)))
    value = override.value()
    return (_option(override, value, str(value) if isinstance(value, str) else override.get_value_element_as_str()),)


def _option(override: Override, value: Any, text: str) -> str:
    """Name of a selected option; a list names several regions of one step."""
    return (option_text(value) if override.key_or_group == GROUP else None) or text


def _listed(tree: GroupTree, group: str) -> str:
    return listed(tree.options(group))


def _selections(groups: Sequence[Override], tree: GroupTree, found: list[str]) -> Iterator[Selection]:
    choices = [[f"{override.get_key_element()}={option}" for option in _options(override)] for override in groups]
    for combination in islice(product(*choices), MAX_SELECTIONS):
        try:
            selection = tree.select(combination)
        except ConfigError as error:
            if not found:
                found += error.problems
            selection = tree.select([])  # so that keys are still checked
        yield selection


def _key_problems(override: Override, tree: GroupTree, selection: Selection) -> Iterator[str]:
    key, line = override.key_or_group, str(override.input_line)
    if "/" in key or override.package is not None:
        yield problems.unknown_group(line, key, tree.groups())
        return
    known = key if problems.known(selection.reference, key) else None
    group, _, option = key.partition(".")
    if known is None and group in tree.own_groups and tree.has_option(group, option):
        yield problems.option_as_key(line, group, option)
    elif known is None:
        yield problems.unknown_key(repr(line), key, selection, tree.own_groups)
    elif override.is_delete():
        yield f"{line!r}: a key cannot be removed, every key has a value. Set it instead: {key}=VALUE."
    elif override.is_add() and not problems.below_open(selection.reference, key):
        yield f"{line!r}: {key} exists. Set it without '+': {key}=VALUE."
    else:
        for value in _values(override):
            yield from problems.of_value(repr(line), key, value, selection, tree.own_groups)


def _values(override: Override) -> list[Any]:
    if not override.is_sweep_override():
        return [override.value()]
    if not override.is_discrete_sweep():
        return []  # an interval belongs to the sweeper
    return [Override._convert_value(value) for value in override.sweep_iterator()]


def _lines_problems(lines: Sequence[str], where: str, tree: GroupTree, selection: Selection) -> Iterator[str]:
    """Check the axes of a sweep file like overrides."""
    found, parsed = _parse(lines, tree)
    for override in parsed.groups:
        found += _group_problems(override, tree)
    for override in parsed.keys:
        found += _key_problems(override, tree, selection)
    yield from (where + problem for problem in found)
