"""Where the option files lie, what a path that a user wrote means, and where files may be kept between runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lucid_yolo.config.errors import ConfigError

CACHE_VARIABLE = "LUCID_YOLO_CACHE"


def conf_dir() -> Path:
    """Folder of the option files: inside an installed package, or beside it in a checkout.

    Raises:
        ConfigError: neither place holds them.
    """
    package = Path(__file__).resolve().parents[1]
    places = (package / "conf", package.parent / "conf")
    for place in places:
        if (place / "config.yaml").is_file():
            return place
    raise ConfigError(
        [f"No option files: neither {places[0]} nor {places[1]} holds a config.yaml. Install the package again."]
    )


def resolve_user_path(path: str | Path) -> Path:
    """Make a path absolute, against the directory the user is in (the program never changes it); ``~`` is the home."""
    return Path(path).expanduser().absolute()


def cache_directory() -> Path:
    """The user's cache directory of this package; the environment variable ``LUCID_YOLO_CACHE`` names another one."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "lucid_yolo"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "lucid_yolo" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lucid_yolo"
