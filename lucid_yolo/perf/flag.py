"""What a flag is, and how flags are found: by walking ``lucid_yolo.perf.flags``, never from a list kept by hand."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from lucid_yolo.perf import flags as flags_package
from lucid_yolo.perf.rules import Facts, Rule

Value = str | int | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a flag is on this machine.

    Attributes:
        value: what is active.
        reason: why; empty where the request speaks for itself.
    """

    value: Value
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One row of the run plan.

    Attributes:
        key: its name in the plan.
        option: how a user sets it, as on the command line; empty where it cannot be set.
        summary: what it does, in one sentence for the documentation.
        requested: what the configuration asks for.
        choose: what is active while none of the rules applies.
        fallback: what is active when a rule of kind ``fallback`` applies.
        rules: rows in the order in which the first unmet one is named.
    """

    key: str
    option: str
    summary: str
    requested: Callable[[Facts], Value]
    choose: Callable[[Facts], Choice]
    fallback: Value
    rules: tuple[Rule, ...] = ()


def find_flags(package: ModuleType = flags_package) -> tuple[Flag, ...]:
    """Collect the flags of every module under a package.

    Args:
        package: each module below it carries ``FLAGS``, a tuple.

    Returns:
        flags by module name, then in the order of the module.

    Raises:
        AttributeError: a module without ``FLAGS``, a mistake of ours.
    """
    names = sorted(module.name for module in pkgutil.walk_packages(package.__path__, prefix=f"{package.__name__}."))
    return tuple(flag for name in names for flag in importlib.import_module(name).FLAGS)
