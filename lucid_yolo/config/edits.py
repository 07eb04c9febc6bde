"""Edits from Python that nothing has checked: of dataclasses, which take any value, and of mappings without types."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf, ValueNode
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException

from lucid_yolo.config import keys
from lucid_yolo.config.elsewhere import flag_here
from lucid_yolo.config.loader import plain
from lucid_yolo.config.names import did_you_mean

REFERENCE = re.compile(r"\$\{\.*([\w.]+)\}")
ENVIRONMENT = re.compile(r"\$\{oc\.env:(\w+)\}")


def type_problems(node: Any, prefix: str = "") -> Iterator[str]:
    """Say what in a dataclass is unknown, missing or of a wrong type; a value that only reads otherwise is converted.

    Args:
        node: the settings, ``"bf16-mixed"`` and ``"5"`` among them become what they stand for.
        prefix: key of the settings with a dot behind it.
    """
    typed, names = OmegaConf.structured(type(node)), [field.name for field in fields(node)]
    for name in vars(node):
        if name not in names:
            yield unknown_key(prefix + name, [prefix + known for known in names])
    for name in names:
        value, declared = getattr(node, name), typed._get_node(name)
        if isinstance(value, str) and value == MISSING:
            yield f"{prefix}{name} must be given: {prefix}{name}=VALUE."
        elif is_dataclass(value) and isinstance(declared, DictConfig):
            yield from type_problems(value, f"{prefix}{name}.")
        elif isinstance(value, dict) and not is_dataclass(OmegaConf.get_type(declared)):
            continue  # a free mapping
        elif (problem := keys.type_problem(declared, value)) is not None:
            yield f"{prefix}{name}: {problem}."
        elif isinstance(declared, ValueNode) and value is not None:
            setattr(node, name, declared.validate_and_convert(value))


def mapping_problems(typed: DictConfig, config: DictConfig) -> Iterator[str]:
    """Say which keys and values of a mapping without types do not fit.

    Args:
        typed: the configuration that it should become.
        config: the mapping.
    """
    for key, node in keys.leaves(config):
        value = OmegaConf.to_container(node, resolve=False) if isinstance(node, ListConfig) else node._value()
        if keys.find(typed, key) is None:
            yield unknown_key(key, keys.all_keys(typed))
        elif (problem := keys.value_problem(typed, key, value)) is not None:
            yield f"{key}: {problem}."


def reference_problem(config: DictConfig, error: OmegaConfBaseException) -> str:
    """Say why a value that refers to another one cannot be had; for any other error what the library says.

    Args:
        config: the typed configuration.
        error: what its resolution raised.
    """
    key = error.full_key
    node = keys.find(config, key) if key else None
    if node is None or not node._is_interpolation():
        return plain(error)
    written = node._value()
    found = REFERENCE.fullmatch(written)
    if isinstance(error, InterpolationKeyError) and found is not None:
        near = did_you_mean(found[1], keys.all_keys(config))
        return f"{key}: {written!r} refers to the key {found[1]!r}, which does not exist.{near}"
    variable = ENVIRONMENT.search(written)
    if variable is not None and variable[1] not in os.environ:
        return f"{key}: {written!r} needs the environment variable {variable[1]}, which is not set."
    if found is not None and (other := keys.find(config, found[1])) is not None:
        return f"{key}: {written!r} is {other._value()!r}, {keys.expected(node)} is expected."
    return f"{key}: {plain(error)}"


def unknown_key(key: str, known: list[str] | tuple[str, ...]) -> str:
    """No such key."""
    return f"There is no key {key!r}.{flag_here(key) or did_you_mean(key, known)}"
