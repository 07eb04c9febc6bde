"""Hydra's config loader without its global state: search path, group tree, defaults list, composition.

The only module (beside the command line's sweep) that uses Hydra's internals; hydra-core is pinned below 1.4 for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import yaml  # type: ignore[import-untyped]
from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.defaults_list import create_defaults_list
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.default_element import GroupDefault, ResultDefault
from hydra.core.object_type import ObjectType
from hydra.core.utils import setup_globals
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.paths import conf_dir
from lucid_yolo.config.regions import GROUP, combined_options
from lucid_yolo.config.schema import KINDS, RootConfig

CONFIG_NAME = "config"
SCHEMA = "lucid_schema"  # root-level names, so that no helper group shows up beside the real ones
USER_PROVIDER = "user"


@dataclass(frozen=True)
class Selection:
    """What a set of group choices selects.

    Attributes:
        reference: typed configuration of our own files only, ``hydra`` included; the yardstick for keys and types.
        user_files: option files outside the package that take part, in order of composition.
        choices: selected option of each group.
    """

    reference: DictConfig
    user_files: tuple[UserFile, ...]
    choices: dict[str, str | None]


@dataclass(frozen=True)
class UserFile:
    """An option file of the user.

    Attributes:
        path: the file.
        package: dotted key that its content goes to; empty for the root.
        option: its name, such as "experiment/mine".
    """

    path: Path
    package: str
    option: str


class GroupTree:
    """The groups and options that can be selected, from the package and from the user's folders."""

    def __init__(self, user_dirs: Sequence[Path] = ()) -> None:
        """Read the search path.

        Args:
            user_dirs: further folders with option files.

        Raises:
            ConfigError: a folder does not exist.
        """
        missing = [
            f"The config folder {folder} {'is a file' if folder.exists() else 'does not exist'}."
            for folder in user_dirs
            if not folder.is_dir()
        ]
        if missing:
            raise ConfigError(missing)
        own = conf_dir().resolve()
        self.user_dirs = tuple(folder.resolve() for folder in user_dirs if folder.resolve() != own)
        version.setbase("1.3")
        setup_globals()
        register_schemas()
        self.loader = ConfigLoaderImpl(search_path(self.user_dirs))
        self._selections: dict[tuple[str, ...], Selection] = {}  # used again only where no file of a user changes one

    @property
    def _repository(self) -> ConfigRepository:
        return self.loader.repository

    def groups(self, parent: str = "") -> tuple[str, ...]:
        """All groups, nested ones as ``a/b``; Hydra's own start with ``hydra/``."""
        found: list[str] = []
        for name in self._repository.get_group_options(parent, ObjectType.GROUP):
            group = f"{parent}/{name}" if parent else name
            if self.options(group):
                found.append(group)
            found.extend(self.groups(group))
        return tuple(found)

    @cached_property
    def own_groups(self) -> tuple[str, ...]:
        """The groups of a run, without Hydra's."""
        return tuple(group for group in self.groups() if not group.startswith("hydra"))

    def is_group(self, name: str) -> bool:
        """Whether a name is a group."""
        return bool(name) and "." not in name and self._repository.group_exists(name)

    def options(self, group: str) -> tuple[str, ...]:
        """Options of a group."""
        return tuple(self._repository.get_group_options(group, ObjectType.CONFIG))

    def has_option(self, group: str, option: str) -> bool:
        """Whether a group has an option (``folder/name`` for nested ones)."""
        return bool(self._repository.config_exists(f"{group}/{option}"))

    def user_file(self, group: str, option: str) -> Path | None:
        """The user's file of an option, if there is one."""
        files = (folder / group / f"{option}.yaml" for folder in self.user_dirs)
        return next((file for file in files if file.is_file()), None)

    def hidden_by_package(self, group: str, option: str) -> Path | None:
        """A user's option file that would silently lose against one of the package with the same name."""
        return self.user_file(group, option) if (conf_dir() / group / f"{option}.yaml").is_file() else None

    @cached_property
    def default_groups(self) -> tuple[str, ...]:
        """The groups that the defaults list names: selected with ``group=option``."""
        primary = self._repository.load_config(CONFIG_NAME)
        entries = primary.defaults_list if primary is not None and primary.defaults_list is not None else []
        named = tuple(entry.group for entry in entries if isinstance(entry, GroupDefault) and entry.group is not None)
        return (*named, *(group for group in self.groups("hydra")))

    def select(self, group_overrides: Sequence[str]) -> Selection:
        """Find which files take part and compose those of the package.

        Args:
            group_overrides: overrides of groups only, such as "optimizer=adamw".

        Raises:
            ConfigError: Hydra cannot make a defaults list, or a file cannot be read.
        """
        key = tuple(group_overrides)
        if not self.user_dirs and key in self._selections:
            return self._selections[key]
        try:
            parsed, files_read = self.loader._parse_overrides_and_create_caching_repo(CONFIG_NAME, list(key))
            defaults = create_defaults_list(
                repo=files_read, config_name=CONFIG_NAME, overrides_list=parsed, prepend_hydra=True, skip_missing=False
            )
            own = [entry for entry in defaults.defaults if self._user_file(entry) is None]
            reference = self.loader._compose_config_from_defaults_list(own, files_read)
        except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
            raise ConfigError([plain(error)]) from None
        files = tuple(file for file in map(self._user_file, defaults.defaults) if file is not None)
        self._selections[key] = Selection(reference, files, dict(defaults.overrides.known_choices))
        return self._selections[key]

    def compose(self, overrides: Sequence[str], *, multirun: bool = False) -> DictConfig:
        """Compose with Hydra, its own node included.

        Raises:
            ConfigError: Hydra or OmegaConf refuses.
        """
        mode = RunMode.MULTIRUN if multirun else RunMode.RUN
        try:
            return self.loader.load_configuration(CONFIG_NAME, list(overrides), mode)
        except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
            raise ConfigError([plain(error)]) from None

    def _user_file(self, entry: ResultDefault) -> UserFile | None:
        if entry.config_path is None:
            return None
        if (conf_dir() / f"{entry.config_path}.yaml").is_file():
            return None
        for folder in self.user_dirs:
            file = folder / f"{entry.config_path}.yaml"
            if file.is_file():
                package = "" if entry.package in (None, "_global_") else str(entry.package)
                return UserFile(file, package, entry.config_path)
        return None


@cache
def package_tree() -> GroupTree:
    """The groups and options of the package alone, whose files do not change while a process lives."""
    return GroupTree()


def search_path(user_dirs: Sequence[Path]) -> ConfigSearchPath:
    """Make Hydra's search path: the package's folder, then the user's."""
    path = create_config_search_path(str(conf_dir()))
    schema = path.get_path().pop()
    for folder in user_dirs:
        path.append(USER_PROVIDER, f"file://{folder}")
    path.append(schema.provider, schema.path)
    return path


def register_schemas() -> None:
    """Make known to Hydra: the typed classes, under names that belong to no group, and the combinations of regions."""
    store = ConfigStore.instance()
    if f"{SCHEMA}.yaml" in store.repo:
        return
    store.store(name=SCHEMA, node=RootConfig)
    for kinds in KINDS.values():
        for name, schema in kinds.items():
            store.store(name=f"{SCHEMA}_{name}", node=schema)
    for name, content in combined_options().items():
        store.store(group=GROUP, name=name, node=content)


def plain(error: Exception) -> str:
    """The sentence of a library's error, with its cause where the error itself says nothing."""
    text = str(error).strip() or str(error.__cause__ or type(error).__name__)
    return " ".join(line.strip() for line in text.splitlines() if line.strip())
