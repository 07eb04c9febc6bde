"""What a recording has baked in, and the first thing of it that has changed since."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from typing import Any

from torch import nn
from torch.nn.modules import module as global_hooks

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class ModuleWatch:
    """Remembers a module as it is: its parts, modes, hooks, settings and the memory of its tensors.

    Args:
        module: everything below it is watched too.
    """

    def __init__(self, module: nn.Module) -> None:
        self._modules = list(module.modules())
        self._settings = [(m.__dict__, name) for m in self._modules for name in _settings(m)]
        self._seen = self._look()

    def difference(self) -> str | None:
        """What has changed since the start, in words; None: nothing."""
        now = self._look()
        if now == self._seen:
            return None
        return next(words for words, was, it_is in zip(WORDS, self._seen, now, strict=True) if was != it_is)

    def _look(self) -> tuple[list[object], ...]:
        """One list a sentence of ``WORDS``."""
        modules = self._modules
        tensors = [t for m in modules for t in (*m._parameters.values(), *m._buffers.values()) if t is not None]
        hooked = global_hooks._has_any_global_hook()  # type: ignore[no-untyped-call]
        return (
            [id(child) for m in modules for child in m._modules.values()],
            [m.training for m in modules],
            [bool(m.__dict__[hooks]) for m in modules for hooks in HOOKS] + [hooked],
            ["forward" in m.__dict__ for m in modules],
            [t.requires_grad for t in tensors],
            [bool(t._backward_hooks) for t in tensors],
            [(t.data_ptr(), t.dtype) for t in tensors],
            [_plain(values.get(name)) for values, name in self._settings],
        )


def _settings(module: nn.Module) -> list[str]:
    """Names of a module's own numbers, texts and dataclasses of them."""
    kinds = (bool, int, float, str)
    own = {name: value for name, value in module.__dict__.items() if name != "training" and name[0] != "_"}
    return [name for name, value in own.items() if isinstance(value, kinds) or is_dataclass(value)]


def _plain(value: Any) -> object:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


WORDS = (
    "a module was replaced",
    "a module changed between training and evaluation",
    "a hook was added or removed",
    "a forward method was replaced",
    "requires_grad of a parameter changed",
    "a hook of a parameter was added or removed",
    "the memory or the type of a parameter or buffer changed",
    "a setting of a module changed",
)
