"""Kernels that are compiled by their first call, and what happens where that fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

from lucid_yolo.config.errors import RunError
from lucid_yolo.config.schema import OnUnmet
from lucid_yolo.perf.warning import warn_user

Result = TypeVar("Result")

TYPES = (torch.float32, torch.bfloat16, torch.float16)
"""Types of maps that our kernels compute with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What a message about kernels says.

    Attributes:
        what: the kernels.
        row: of the plan.
        option: that asks for them.
        without: option that does without them.
        instead: who does the work then.
    """

    what: str
    row: str
    option: str
    without: str
    instead: str


class FirstCall:
    """The first call of kernels: whether their toolchain works is not known before.

    Args:
        words: for messages.
        on_unmet: whether a failure is an error.

    Attributes:
        failure: why something else does the work; empty where the kernels do.
    """

    def __init__(self, words: Words, on_unmet: OnUnmet) -> None:
        self._words = words
        self._on_unmet = on_unmet
        self.failure = ""

    def attempt(self, call: Callable[[], Result]) -> Result | None:
        """Call, and give the kernels up with a warning where that fails.

        Args:
            call: imports, compiles and launches.

        Returns:
            What it returns; None where it failed.

        Raises:
            RunError: it failed, and the run asks for an error then.
        """
        try:
            return call()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a toolchain of several programs can meet
            self._give_up(f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0]}")
            return None

    def _give_up(self, cause: str) -> None:
        self.failure, words = cause, self._words
        message = f"{words.what} could not be compiled or started ({cause})"
        if self._on_unmet is OnUnmet.RAISE:
            raise RunError(f"{words.option}: {message}; {words.without} does without it")
        warn_user(f"{words.row}: {message} -> {words.instead}, as with {words.without}")
