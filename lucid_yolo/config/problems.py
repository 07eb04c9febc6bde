"""The sentences about keys, groups and values that do not fit, for the command line and for files alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lucid_yolo.config import keys
from lucid_yolo.config.elsewhere import OPTIONS, file_here, flag_here
from lucid_yolo.config.loader import Selection
from lucid_yolo.config.names import did_you_mean, nearest
from lucid_yolo.config.regions import GROUP, did_you_mean_option, listed
from lucid_yolo.config.schema import KINDS

WRITTEN_BY_COMPOSE = "overrides"


def unknown_option(group: str, option: str, options: Sequence[str]) -> str:
    """A group has no such option."""
    if here := file_here(group, option):
        return f"{group} has no option {option!r}.{here} Options: {listed(options)}."
    meant = OPTIONS.get((group, option))
    question = did_you_mean_option(option, options) if meant is None else f" Did you mean {meant!r}?"
    return f"{group} has no option {option!r}.{question} Options: {listed(options)}."


def option_as_key(line: str, group: str, option: str) -> str:
    """An option was written like a key of its group."""
    return f"{line!r}: {option} is an option of {group}: write {group}={option}."


def unknown_group(line: str, group: str, groups: Sequence[str]) -> str:
    """No such group."""
    return f"{line!r}: there is no group {group!r}.{did_you_mean(group, groups)} Groups: {_own(groups)}."


def known(reference: DictConfig, key: str) -> bool:
    """Whether a key exists, or lies where anything goes."""
    return keys.find(reference, key) is not None or below_open(reference, key)


def below_open(reference: DictConfig, key: str) -> bool:
    """Whether a key that does not exist lies where anything goes."""
    return keys.find(reference, key) is None and keys.is_open(reference, key)


def unknown_key(where: str, key: str, selection: Selection, groups: Sequence[str]) -> str:
    """No such key; names what is near, the option of a group that has it, and what a flag elsewhere is called here.

    Args:
        where: the override or the file and line.
        key: dotted key.
        selection: what is selected.
        groups: groups of a run.
    """
    candidates = (
        keys.hydra_keys(selection.reference) if key.startswith("hydra.") else keys.all_keys(selection.reference)
    )
    text = f"{where}: there is no key {key!r}."
    if here := flag_here(key):
        return text + here
    found = nearest(key, candidates)
    if found and found[0] in groups and "." not in key:
        return f"{text}{did_you_mean(key, candidates)} Groups: {_own(groups)}."
    return text + did_you_mean(key, candidates) + _elsewhere(key, selection) + _closed(key, selection)


def of_value(where: str, key: str, value: Any, selection: Selection, groups: Sequence[str]) -> Iterator[str]:
    """Problems of a value, of each one below it if it is a mapping."""
    reference = selection.reference
    if key == WRITTEN_BY_COMPOSE:
        yield f"{where}: {key!r} is the record of a composition and cannot be set."
    elif keys.find(reference, key) is None:
        if not below_open(reference, key):
            yield unknown_key(where, key, selection, groups)
    elif isinstance(value, Mapping):
        if not isinstance(keys.find(reference, key), DictConfig):
            yield f"{where}: {key!r} takes a single value, not a mapping."
            return
        for name, inner in value.items():
            yield from of_value(where, f"{key}.{name}", inner, selection, groups)
    elif (problem := keys.value_problem(reference, key, value)) is not None:
        yield f"{where}: {problem}.{_selects(key, groups)}"


def _selects(key: str, groups: Sequence[str]) -> str:
    """How a group, or a region that an option selects, is written; empty for any other key."""
    stem, _, leaf = key.rpartition(".")
    if stem == GROUP:
        return f" To select it write {GROUP}={leaf}."
    return f" It is a group: write {key}=OPTION." if key in groups else ""


def _own(groups: Sequence[str]) -> str:
    return ", ".join(group for group in groups if not group.startswith("hydra"))


def _elsewhere(key: str, selection: Selection) -> str:
    """Name the options of a group that have a key which the selected one lacks."""
    group, _, rest = key.partition(".")
    having = [name for name, schema in KINDS.get(group, {}).items() if _has(schema, rest.split("."))]
    if not having:
        return ""
    return f" It belongs to {group}={' or '.join(having)}; selected is {group}={selection.choices.get(group)}."


def _has(schema: type[Any], path: Sequence[str]) -> bool:
    """Whether a typed class, or one inside it, has a key."""
    found = OmegaConf.structured(schema)
    for name in path:
        kind = OmegaConf.get_type(found)
        if not is_dataclass(kind) or name not in {field.name for field in fields(kind)}:
            return False
        found = None if OmegaConf.is_missing(found, name) else found[name]
    return True


def _closed(key: str, selection: Selection) -> str:
    if not key.startswith("data.options."):
        return ""
    names = list(selection.reference.data.options)
    return f" The options of data={selection.choices.get('data')} are: {', '.join(map(str, names)) or 'none'}."
