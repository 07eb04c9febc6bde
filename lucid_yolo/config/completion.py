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
from lucid_yolo.config.verbs import Verb, setting_keys, setting_values, split_arguments

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
    verbs: Mapping[str, Verb],
    flags: Sequence[str],
    default_verb: str | None,
) -> None:
    """Answer a shell, or print the script that installs completion.

    Args:
        arguments: such as ``["query=bash"]`` or ``["install=zsh"]``.
        verbs: each verb with what it takes.
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
    verb = verbs.get(line.verb or default_verb or "")
    if line.word.startswith("-"):
        suggestions = [flag for flag in flags if flag.startswith(line.word)]
    elif verb is None:
        suggestions = sorted(name for name in verbs if name.startswith(line.word))
    else:
        suggestions = _settings(verb, line.word)
        if verb.overrides:
            suggestions += _overrides(arguments, line, verb)
    print(separator.join(suggestions))


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


def _settings(verb: Verb, word: str) -> list[str]:
    """The settings of a verb that a word may become."""
    if verb.settings is None:
        return []
    key, equals, _ = word.partition("=")
    if equals:
        known = [f"{key}={value}" for value in setting_values(verb.settings, key)]
    else:
        known = [f"{name}=" for name in setting_keys(verb.settings)]
    return [name for name in known if name.startswith(word)]


def _overrides(arguments: Sequence[str], line: Line, verb: Verb) -> list[str]:
    """The overrides of a run that a word may become, by Hydra's completion."""
    settings = verb.settings
    if settings is not None and line.word.partition("=")[0] in setting_keys(settings) and "=" in line.word:
        return []
    before = line.words if settings is None else split_arguments(settings, line.words)[1]
    folders = tuple(folder for folder in _folders(line.words) if folder.is_dir())
    os.environ[LINE] = " ".join([PROGRAM, *before, line.word])
    answer = io.StringIO()
    try:
        with redirect_stdout(answer):
            _hydra(arguments, folders)
    except (LucidError, HydraException, OmegaConfBaseException):
        return []  # a command line with mistakes has no completions; running it explains them
    return [word for word in answer.getvalue().split() if not word.startswith(WRITTEN_BY_COMPOSE)]


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
