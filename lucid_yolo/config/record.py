"""A configuration as values and as overrides: what a run writes down, and what its resumption compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig, OmegaConf

PLACES = ("run_dir", "resume", "overrides")  # where a run is and how it was asked for, not what it does

# What a resumed run cannot change: shapes, data, the order of samples and the kind of optimizer state.
FROZEN = (
    "task.name",
    "model",
    "data.format",
    "data.root",
    "data.train",
    "data.train_images",
    "data.options",
    "data.image_size",
    "data.batch_size",
    "optimizer.name",
    "trainer.accumulate",
    "seed",
)


def values(config: DictConfig) -> dict[str, Any]:
    """All values by dotted key, resolved; lists count as values, enums are texts."""
    container = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    return dict(_flat(container)) if isinstance(container, dict) else {}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Keys whose values differ, with both values (None where a key is absent); places are left out."""
    names = [key for key in {**old, **new} if key not in PLACES]
    return {key: (old.get(key), new.get(key)) for key in names if old.get(key) != new.get(key)}


def is_frozen(key: str) -> bool:
    """Whether a resumed run must keep a value."""
    return any(key == name or key.startswith(f"{name}.") for name in FROZEN)


def as_override(key: str, value: Any) -> str:
    """Write a value as an override that composes to it."""
    return f"{key}={_as_text(value)}"


def key_of(override: str) -> str:
    """What an override addresses, without its sign."""
    return override.partition("=")[0].lstrip("+~")


def replace(overrides: Iterable[str], later: Sequence[str]) -> list[str]:
    """Append overrides, in place of earlier ones of the same key or group."""
    replaced = {key_of(line) for line in later}
    return [line for line in overrides if key_of(line) not in replaced] + list(later)


def _flat(node: Mapping[Any, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in node.items():
        key = f"{prefix}.{name}" if prefix else str(name)
        if isinstance(value, Mapping):
            yield from _flat(value, key)
        else:
            yield key, value


def _as_text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, str):  # also our enums
        return QuotedString(str(value), Quote.single).with_quotes()
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{_as_text(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ",".join(map(_as_text, value)) + "]"
    return repr(value)
