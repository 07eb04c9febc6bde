"""Tab completion in bash, zsh and fish: Hydra's, taught about verbs and their settings."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from lucid_yolo.config.errors import ConfigError, LucidError
from lucid_yolo.config.loader import CONFIG_NAME
from lucid_yolo.config.problems import WRITTEN_BY_COMPOSE
from lucid_yolo.config.show import open_hydra
from lucid_yolo.config.verbs import setting_keys, setting_values

LINE = "COMP_LINE"
PROGRAM = "lucid-yolo"
FOLDER_FLAGS = ("--config-dir", "-cd")


@dataclass(frozen=True)
class Line:
    """A command line under completion.

    Attributes:
        verb: the verb, or None where it is still to come.
        words: complete words after the verb.
        word: the word being typed, perhaps empty.
    """

    verb: str | None
    words: tuple[str, ...]
    word: str


def run_completion(
    arguments: Sequence[str],
    *,
    verbs: Mapping[str, type | None],
    flags: Sequence[str],
    default_verb: str | None,
) -> None:
    """Answer a shell, or print the script that installs completion.

    Args:
        arguments: such as ``["query=bash"]`` or ``["install=zsh"]``.
        verbs: each verb with the class of its settings; None: it takes the overrides of a run.
        flags: flags of the command line.
        default_verb: verb of a command line that names none.

    Raises:
        ConfigError: the arguments name no shell that Hydra knows.
    """
    queried = [argument.partition("=")[2] for argument in arguments if argument.startswith("query=")]
    if not queried:
        _hydra(arguments, ())  # prints the script that installs or removes completion
        return
    separator = "\n" if queried[0] == "fish" else " "
    line = read_line(os.environ.get(LINE, ""), verbs)
    suggestions = _own_suggestions(line, verbs, flags)
    if line.verb is None and default_verb is None:
        suggestions = sorted(verb for verb in verbs if verb.startswith(line.word))
    if suggestions is not None:
        print(separator.join(suggestions))
        return
    folders = tuple(folder for folder in _folders(line.words) if folder.is_dir())
    os.environ[LINE] = " ".join([PROGRAM, *line.words, line.word])
    answer = io.StringIO()
    try:
        with redirect_stdout(answer):
            _hydra(arguments, folders)
    except (LucidError, HydraException, OmegaConfBaseException):
        return  # a command line with mistakes has no completions; running it explains them
    words = [word for word in answer.getvalue().split() if not word.startswith(WRITTEN_BY_COMPOSE)]
    print(separator.join(words))


def read_line(text: str, verbs: Iterable[str]) -> Line:
    """Take a command line apart.

    Args:
        text: what was typed up to the cursor, the program included.
        verbs: known verbs.
    """
    words = text.split()
    word = "" if not words or text[-1].isspace() else words.pop()
    if words and Path(words[0]).name.startswith("python"):
        words = words[3:] if words[1:2] == ["-m"] else words[2:]
    else:
        words = words[1:]
    if words and words[0] in verbs:
        return Line(words[0], tuple(words[1:]), word)
    return Line(None, tuple(words), word)


def _own_suggestions(line: Line, verbs: Mapping[str, type | None], flags: Sequence[str]) -> list[str] | None:
    """What Hydra cannot know; None leaves the answer to it."""
    if line.word.startswith("-"):
        return [flag for flag in flags if flag.startswith(line.word)]
    settings = verbs.get(line.verb) if line.verb is not None else None
    if settings is None:
        return None
    key, equals, _ = line.word.partition("=")
    known = [f"{key}={value}" for value in setting_values(settings, key)] if equals else setting_keys(settings)
    return [f"{name}" if equals else f"{name}=" for name in known if name.startswith(line.word)]


def _folders(words: Sequence[str]) -> list[Path]:
    found = [word.partition("=")[2] for word in words if word.startswith(tuple(f"{flag}=" for flag in FOLDER_FLAGS))]
    found += [after for word, after in pairwise(words) if word in FOLDER_FLAGS]
    return [Path(folder).expanduser() for folder in found]


def _hydra(arguments: Sequence[str], folders: Sequence[Path]) -> None:
    try:
        with open_hydra(folders) as hydra:
            hydra.shell_completion(config_name=CONFIG_NAME, overrides=list(arguments))
    except ValueError as error:
        raise ConfigError([f"{error}. Write install=bash, install=zsh or install=fish after -sc."]) from None
