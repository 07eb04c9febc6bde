"""What can be recorded of a training step: regions, their order, the names of their combinations, and all of it.

An option file a region is kept by hand. Their combinations are generated from the order of ``CaptureConfig``: every
further region would double the number of files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from itertools import combinations
from typing import Any

from lucid_yolo.config.names import did_you_mean, nearest
from lucid_yolo.config.schema import CaptureConfig

GROUP = "capture"
JOIN = "+"
NONE = "none"  # the option that selects no region
STEP = "step"  # the whole step as one graph
AUTO = "auto"  # whatever a trial finds fastest
ALONE = {
    STEP: "records everything that the others would",
    AUTO: "finds out which of the others to select",
}
"""Options that go with no other, and why."""
OPTIONS: tuple[str, ...] = tuple(field.name for field in fields(CaptureConfig))
"""Everything that can be selected, in the order in which a combination names it."""
REGIONS: tuple[str, ...] = tuple(option for option in OPTIONS if option not in ALONE)
"""Every region, each a recording of its own."""
OF_EVERY_TASK: tuple[str, ...] = tuple(region for region in REGIONS if region != "heads")
"""The regions that each task has."""

_LIST_OR_JOINED = re.compile(r"\[[^\[\]()]*\]|\w+(?:\+\w+)+")


def combined_options() -> dict[str, dict[str, dict[str, bool]]]:
    """Name and content of every option that selects two or more regions."""
    sets = (chosen for size in range(2, len(REGIONS) + 1) for chosen in combinations(REGIONS, size))
    return {JOIN.join(chosen): {region: {"selected": True} for region in chosen} for chosen in sets}


def option_of(names: Iterable[str]) -> str:
    """Name of the option that selects some regions, whatever their order; with an unknown one they stay as they are.

    Args:
        names: of regions.
    """
    found = tuple(dict.fromkeys(names))
    known = set(found) <= set(OPTIONS)
    return JOIN.join(sorted(found, key=OPTIONS.index) if known else found)


def in_order(line: str) -> str:
    """Write an override of the group as Hydra knows it: ``[loss,network]`` as ``network+loss``, ``[]`` as ``none``.

    Args:
        line: any override; those of other groups and keys come back unchanged.
    """
    key, equals, value = line.partition("=")
    if key != GROUP or not equals or "glob(" in value:
        return line
    return key + equals + _LIST_OR_JOINED.sub(lambda found: _ordered(found[0]), value)


def listed(options: Sequence[str]) -> str:
    """Options for a sentence; regions in their order, combinations not told one by one."""
    singles = [option for option in options if JOIN not in option]
    singles.sort(key=lambda option: OPTIONS.index(option) if option in OPTIONS else -1)
    example = JOIN.join(OF_EVERY_TASK[:2])
    return ", ".join(singles) + (f", and combinations such as {example}" if example in options else "")


def did_you_mean_option(option: str, options: Sequence[str]) -> str:
    """The nearest options as a question; in a combination each part is looked up by itself."""
    if JOIN in option:
        parts = option.split(JOIN)
        if alone := [part for part in parts if part in ALONE]:
            return f" {alone[0]} goes alone: it {ALONE[alone[0]]}."
        name = option_of(region for part in parts for region in nearest(part, OPTIONS, limit=1))
        return f" Did you mean {name!r}?" if name else ""
    return did_you_mean(option, options)


def option_text(value: Any) -> str | None:
    """The option that a parsed value of this group names: a text, or a list of regions; None for anything else."""
    if isinstance(value, str):
        return value
    return (option_of(map(str, value)) or NONE) if isinstance(value, list) else None


def _ordered(text: str) -> str:
    names = [name.strip(" '\"") for name in re.split(r"[,+]", text.strip("[]"))]
    return option_of(name for name in names if name) or NONE
