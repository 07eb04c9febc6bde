"""Looks at the configuration space without running anything: groups, Hydra's own configuration, Hydra's information."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra

from lucid_yolo.config.compose import Request
from lucid_yolo.config.guard import check_overrides
from lucid_yolo.config.loader import CONFIG_NAME, GroupTree, search_path
from lucid_yolo.config.regions import listed


def groups_help(folders: Sequence[Path], groups: Sequence[str] = ()) -> str:
    """One line a group with its options, those in the user's folders included.

    Args:
        folders: the user's folders of option files.
        groups: only these; empty: all of them.
    """
    tree = GroupTree(folders)
    shown = [group for group in tree.own_groups if not groups or group in groups]
    return "\n".join(f"  {group:<12}{listed(tree.options(group))}" for group in shown)


def show_hydra_config(kind: str, request: Request, *, package: str | None, resolve: bool) -> None:
    """Print Hydra's configuration of a checked request.

    Args:
        kind: "hydra" or "all".
        request: the overrides.
        package: print only this part.
        resolve: resolve interpolations.
    """
    with open_hydra(request.folders) as hydra:
        hydra.show_cfg(CONFIG_NAME, list(request.overrides), cfg_type=kind, package=package, resolve=resolve)


def show_hydra_info(kind: str, request: Request) -> None:
    """Print what Hydra knows about a composition.

    Args:
        kind: "all", "config", "defaults", "defaults-tree", "plugins" or "searchpath".
        request: the overrides.

    Raises:
        ConfigError: everything that is wrong with the overrides.
    """
    check_overrides(request.overrides, tree=GroupTree(request.folders))
    with open_hydra(request.folders) as hydra:
        hydra.show_info(kind, config_name=CONFIG_NAME, overrides=list(request.overrides))


@contextmanager
def open_hydra(folders: Sequence[Path], *, name: str = "lucid-yolo") -> Iterator[Hydra]:
    """Start Hydra's application object, and clear its global state at the end.

    Args:
        folders: the user's folders of option files.
        name: job name.
    """
    tree = GroupTree(folders)  # registers schemas and resolvers
    try:
        yield Hydra.create_main_hydra2(task_name=name, config_search_path=search_path(tree.user_dirs))
    finally:
        GlobalHydra.instance().clear()
