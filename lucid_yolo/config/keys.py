"""Dotted keys in a typed configuration: what exists, where anything goes, and whether a value fits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from omegaconf import (
    AnyNode,
    BooleanNode,
    DictConfig,
    EnumNode,
    FloatNode,
    IntegerNode,
    ListConfig,
    Node,
    OmegaConf,
    ValueNode,
)
from omegaconf._utils import is_structured_config
from omegaconf.errors import OmegaConfBaseException

from lucid_yolo.config.ranges import range_problem

EXPECTED: dict[type[Node], str] = {
    BooleanNode: "true or false",
    IntegerNode: "a whole number",
    FloatNode: "a number",
}
ELEMENTS: dict[Any, str] = {int: " of whole numbers", float: " of numbers", str: " of texts"}


def split(key: str) -> tuple[str, ...]:
    """Parts of a dotted key."""
    return tuple(key.split("."))


def child(node: Node, part: str) -> Node | None:
    """Child of a mapping by name, without resolving anything; None when there is none."""
    if not isinstance(node, DictConfig) or node._is_none() or node._is_missing() or node._is_interpolation():
        return None
    found = node._get_node(part, validate_access=False)
    return found if isinstance(found, Node) else None


def find(root: DictConfig, key: str) -> Node | None:
    """Node of a dotted key; None when the key does not exist."""
    node: Node | None = root
    for part in split(key):
        node = child(node, part) if node is not None else None
    return node


def is_open(root: DictConfig, key: str) -> bool:
    """Whether a key that does not exist lies in an open place: inside a list, or in a free mapping of Hydra's own.

    ``data.options`` is free by type and still closed: its keys are those of the selected option file.
    """
    node: Node | None = root
    for part in split(key):
        if isinstance(node, (ListConfig, AnyNode)):
            return True
        below = child(node, part) if node is not None else None
        if below is None:
            free = isinstance(node, DictConfig) and not is_structured_config(OmegaConf.get_type(node))
            return free and key.startswith("hydra.")
        node = below
    return False


def leaves(node: Node, prefix: str = "") -> Iterator[tuple[str, Node]]:
    """All values below a node with their dotted keys; lists count as values."""
    if isinstance(node, DictConfig) and not (node._is_none() or node._is_missing() or node._is_interpolation()):
        for name in map(str, node):
            below = child(node, name)
            if below is not None:
                yield from leaves(below, f"{prefix}.{name}" if prefix else name)
        return
    yield prefix, node


def all_keys(root: DictConfig) -> tuple[str, ...]:
    """Every dotted key of a run, inner ones too; Hydra's own and the record of the composition are left out."""
    return tuple(key for key in _every(root) if split(key)[0] not in ("hydra", "overrides"))


def hydra_keys(root: DictConfig) -> tuple[str, ...]:
    """Every dotted key of Hydra's own settings."""
    return tuple(key for key in _every(root) if split(key)[0] == "hydra")


def _every(root: DictConfig) -> dict[str, None]:
    found: dict[str, None] = {}
    for key, _ in leaves(root):
        parts = split(key)
        for end in range(1, len(parts) + 1):
            found[".".join(parts[:end])] = None
    return found


def value_problem(root: DictConfig, key: str, value: Any) -> str | None:
    """Say why a value does not fit the type and range of a key; None when it fits.

    Args:
        root: the typed configuration.
        key: an existing dotted key that is no mapping.
        value: what a user wrote, parsed.
    """
    node = find(root, key)
    if node is None or (isinstance(value, str) and "${" in value):
        return None  # an interpolation is checked when it is resolved
    return type_problem(node, value) or (None if value is None else range_problem(key, value))


def type_problem(node: Node, value: Any) -> str | None:
    """Say why a value does not fit a type; None when it fits.

    Args:
        node: of that type.
        value: what a user wrote.
    """
    if value is None:
        return None if node._is_optional() else f"null is not allowed, {expected(node)} is expected"
    return None if _fits(node, value) else f"{value!r} is not {expected(node)}"


def choices(node: Node | None) -> tuple[str, ...]:
    """The texts of a closed set; empty for any other node."""
    return tuple(node.enum_type[name].name for name in node.enum_type.__members__) if isinstance(node, EnumNode) else ()


def _fits(node: Node, value: Any) -> bool:
    if isinstance(node, (DictConfig, ListConfig)) or isinstance(value, (dict, list, DictConfig, ListConfig)):
        if isinstance(node, ListConfig) and isinstance(value, (list, ListConfig)):
            return _holds(node, value)
        return isinstance(node, AnyNode)
    if isinstance(node, BooleanNode) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(node, (BooleanNode, AnyNode))
    if isinstance(node, IntegerNode) and isinstance(value, float):
        return False
    try:
        if isinstance(node, ValueNode):
            node.validate_and_convert(value)
    except OmegaConfBaseException:
        return False
    return True


def _holds(node: ListConfig, values: list[Any] | ListConfig) -> bool:
    """Whether a list may hold these values."""
    try:
        ListConfig(list(values), element_type=node._metadata.element_type)
    except OmegaConfBaseException:
        return False
    return True


def expected(node: Node) -> str:
    """What a type takes, in words."""
    if isinstance(node, ListConfig):
        return "a list" + ELEMENTS.get(node._metadata.element_type, "")
    if isinstance(node, EnumNode):
        return f"one of {', '.join(choices(node))}"
    if isinstance(node, DictConfig):
        return f"a mapping with the keys {', '.join(str(name) for name in node)}"
    return next((words for kind, words in EXPECTED.items() if isinstance(node, kind)), "a text")
