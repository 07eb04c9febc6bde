"""What a recording has baked in, and the first thing of it that has changed since."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, is_dataclass
from types import NoneType

from torch import Tensor, nn
from torch.nn.modules import module as global_hooks

SETTINGS = (bool, int, float, str, NoneType)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class ModuleWatch:
    """Remembers a module as it is: its parts, modes, hooks, settings and the memory of its tensors.

    Args:
        module: everything below it is watched too.
        without: what is below these is not.
    """

    def __init__(self, module: nn.Module, *, without: Iterable[nn.Module] = ()) -> None:
        # Looked at in every step: the dictionaries themselves stay, what is in them may change.
        elsewhere = {id(m) for other in without for m in other.modules()}
        modules = [m for m in module.modules() if id(m) not in elsewhere]
        self._own = [m.__dict__ for m in modules]
        self._children = [m._modules for m in modules if m._modules]
        self._hooks = [m.__dict__[hooks] for m in modules for hooks in HOOKS]
        self._tensors = [tensors for m in modules for tensors in (m._parameters, m._buffers) if tensors]
        self._settings = [(m.__dict__, name) for m in modules for name in _own(m, _is_setting)]
        self._plain = [(m.__dict__, name) for m in modules for name in _own(m, lambda value: isinstance(value, Tensor))]
        self._nested = [(m.__dict__, name) for m in modules for name in _own(m, _is_nested)]
        self._seen = self._look()

    def difference(self) -> str | None:
        """What has changed since the start, in words; None: nothing."""
        now = self._look()
        if now == self._seen:
            return None
        return next(words for words, was, it_is in zip(WORDS, self._seen, now, strict=True) if was != it_is)

    def _look(self) -> tuple[object, ...]:
        """One value a sentence of ``WORDS``."""
        tensors = [t for of_module in self._tensors for t in of_module.values() if t is not None]
        hooked = global_hooks._has_any_global_hook()  # type: ignore[no-untyped-call]
        return (
            [id(child) for children in self._children for child in children.values()],
            [own.get("training") for own in self._own],  # a span has none of its own
            hooked or any(self._hooks),
            any("forward" in own for own in self._own),
            [t.requires_grad for t in tensors],
            any(t._backward_hooks or t._post_accumulate_grad_hooks for t in tensors),
            [t.data_ptr() for t in tensors] + [id(own.get(name)) for own, name in self._plain],
            [t.dtype for t in tensors],
            [own.get(name) for own, name in self._settings],
            [asdict(own[name]) for own, name in self._nested],
        )


def _own(module: nn.Module, is_wanted: Callable[[object], bool]) -> list[str]:
    """Names of a module's own public values of some kind."""
    own = {name: value for name, value in module.__dict__.items() if name != "training" and name[0] != "_"}
    return [name for name, value in own.items() if is_wanted(value)]


def _is_setting(value: object) -> bool:
    """Whether a value is plain, or a tuple of plain ones such as the stride of a convolution."""
    return isinstance(value, SETTINGS) or (isinstance(value, tuple) and all(map(_is_setting, value)))


def _is_nested(value: object) -> bool:
    """Whether a value is a dataclass of settings."""
    return is_dataclass(value) and not isinstance(value, type)


WORDS = (
    "a module was replaced",
    "a module changed between training and evaluation",
    "a hook was added or removed",
    "a forward method was replaced",
    "requires_grad of a parameter changed",
    "a hook of a parameter was added or removed",
    "the memory of a parameter or buffer changed",
    "the type of a parameter or buffer changed",
    "a setting of a module changed",
    "a setting of a module changed",
)
