"""Where the option files lie, and what a path that a user wrote means."""

from __future__ import annotations

from pathlib import Path

from lucid_yolo.config.errors import ConfigError


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
