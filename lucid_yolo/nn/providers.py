"""Who does a part of the work of a network's modules: somebody from outside, for as long as a fit lasts."""

from __future__ import annotations

from torch import nn


def provide(network: nn.Module, kind: type[nn.Module], name: str, provider: object) -> None:
    """Have modules use somebody instead of what their class names.

    Args:
        network: any; modules of other kinds are left alone.
        kind: of the modules, whose class has somebody under the name.
        name: of the attribute; it is no parameter of the network, and not kept with it.
        provider: serves all of them.
    """
    for module in network.modules():
        if isinstance(module, kind):
            setattr(module, name, provider)


def withdraw(network: nn.Module, kind: type[nn.Module], name: str) -> None:
    """Have modules use what their class names again."""
    for module in network.modules():
        if isinstance(module, kind):
            vars(module).pop(name, None)
