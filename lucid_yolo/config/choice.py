"""Closed sets of texts, as values of the configuration."""

from __future__ import annotations

from enum import EnumType, StrEnum
from typing import Any, cast


class _ByValue(EnumType):
    """Find members by the text that users write, as well as by name."""

    def __getitem__(cls, name: str) -> Any:
        members = cast("dict[str, StrEnum]", cls.__members__)
        return next((member for member in members.values() if member.value == name), None) or super().__getitem__(name)


class Choice(StrEnum, metaclass=_ByValue):
    """A closed set of texts, named by them: OmegaConf works with member names, users with values such as 32-true."""

    @property
    def name(self) -> str:
        """The value: what a user writes."""
        return self.value
