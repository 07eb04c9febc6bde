"""Triton's interpreter, without work that it repeats; import this before any kernel.

Triton reads TRITON_INTERPRET when it is imported, so the programs that use it are processes of their own.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

from collections.abc import Callable
from typing import Any

from triton.runtime import interpreter


def patch_once_a_launch() -> None:
    """Let a launch replace the language once for each module whose functions it calls.

    Triton does it again at each call of a function within a kernel, which takes a third of the time. What it has
    replaced stays until the launch ends.
    """
    patch, run = interpreter._patch_lang, interpreter.InterpretedFunction.run
    done: set[int] = set()

    def patch_a_new_module(function: Callable[..., Any]) -> Any:
        names = id(function.__globals__)
        if names in done:
            return None
        done.add(names)
        return patch(function)

    def run_in_a_fresh_language(self: Any, *args: Any, **settings: Any) -> Any:
        done.clear()
        return run(self, *args, **settings)

    interpreter._patch_lang = patch_a_new_module
    interpreter.InterpretedFunction.run = run_in_a_fresh_language
