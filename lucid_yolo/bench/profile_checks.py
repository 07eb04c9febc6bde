"""What can be wrong with a stored profile of a step: a file that somebody cut, edited or mistook for one."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Check = Callable[[str, Any], Iterator[str]]
"""Says what is wrong with a value, by its name."""
LIMIT = 1e9  # ms, eleven days


def profile_problems(values: Any) -> list[str]:
    """Everything that is wrong with the values of a profile; none where it can be read.

    Args:
        values: whatever a file holds.
    """
    if not isinstance(values, Mapping):
        return [f"it holds {reprlib.repr(values)}, and must hold a mapping"]
    known = {**_NEEDED, **_LATER, "shares": _anything}
    missing = [f"it has no {name}" for name in _NEEDED if name not in values]
    unknown = [f"it knows no {name}" for name in values if name not in known]
    checked = [text for name in known.keys() & values.keys() for text in known[name](name, values[name])]
    return [*missing, *unknown, *sorted(checked)]


def _anything(name: str, value: Any) -> Iterator[str]:
    return iter(())


def _value(fits: Callable[[Any], bool], allowed: str) -> Check:
    """Check of one value."""

    def check(name: str, value: Any) -> Iterator[str]:
        if not fits(value):
            yield f"{name} is {reprlib.repr(value)}, and must be {allowed}"

    return check


def _optional(inner: Check) -> Check:
    """Check of a value that may be None."""
    return lambda name, value: iter(()) if value is None else inner(name, value)


def _mapping(inner: Check = _anything, **needed: Check) -> Check:
    """Check of a mapping: keys that it needs, each with a check of its own, and any others with the same one."""

    def check(name: str, value: Any) -> Iterator[str]:
        if not isinstance(value, Mapping):
            yield f"{name} is {reprlib.repr(value)}, and must be a mapping"
            return
        yield from (f"{name} has no {key}" for key in needed if key not in value)
        for key, one in value.items():
            yield from needed.get(key, inner)(f"{name}.{key}", one)

    return check


def _host_ms(name: str, value: Any) -> Iterator[str]:
    """A step recorded as a whole leaves its parts no time; yet shares are divided by the time of all of them."""
    problems = list(_TIMES(name, value))
    yield from problems
    if not problems and sum(value.values()) == 0:
        yield f"{name} has no time in any part"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LIMIT  # NaN is not


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


_NUMBER = _value(_is_number, f"a number from 0 to {LIMIT:g}")
_COUNT = _value(_is_count, "a whole number of at least 1")
_TEXT = _value(lambda value: isinstance(value, str) and value != "", "a text")
_SCALAR = _value(lambda value: isinstance(value, str | int | float), "a text, a number, true or false")
_TIMES = _mapping(_NUMBER)
_NEEDED: Mapping[str, Check] = {
    "steps": _COUNT,
    "step_ms": _value(lambda value: _is_number(value) and value > 0, f"a number above 0, up to {LIMIT:g}"),
    "wait_ms": _NUMBER,
    "host_ms": _host_ms,
    "synchronised_ms": _TIMES,
    "device_busy_ms": _optional(_NUMBER),
    "launches": _NUMBER,
    "synchronisations": _optional(_TIMES),
    "flags": _mapping(_SCALAR),
    "data": _mapping(_COUNT, batch_size=_COUNT, image_size=_COUNT, train_images=_COUNT),
    "environment": _mapping(
        device=_TEXT,
        driver=_optional(_TEXT),
        versions=_mapping(_TEXT, torch=_TEXT),
        commit=_optional(_TEXT),
        cores=_optional(_COUNT),
    ),
}
_LATER: Mapping[str, Check] = {
    f"{above}_{kind}_ms": _TIMES for above in ("optimizer", "forward", "clip") for kind in ("host", "synchronised")
}
