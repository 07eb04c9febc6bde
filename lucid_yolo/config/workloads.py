"""Workloads of the verb ``compare``: files that say what is compared with what, on what, and how often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from lucid_yolo.config import record
from lucid_yolo.config.choice import Choice
from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.names import did_you_mean
from lucid_yolo.config.paths import resolve_user_path
from lucid_yolo.config.tasks import TaskName

FOLDER = "ab"
BASE = "base"  # key of a workload's file: another one, whose common overrides it takes over, and all that it leaves out
# What a comparison decides itself: where a run goes, and that a flag that cannot be had fails instead of falling back.
RESERVED = ("run_dir", "resume", "on_unmet")


class MeasureName(Choice):
    """What the paired ratio is made of; lower is faster in all of them."""

    COMPLETE_FIT = "complete_fit"
    STEP = "step"
    IMAGE = "image"


class Mark(Choice):
    """What a documented workload asks of a flag: a gain, or only that it is not slower."""

    GAIN = "gain"
    NOT_SLOWER = "not_slower"


class ParityState(Choice):
    """Whether a flag computes what the run without it computes, as far as it was booked."""

    GREEN = "green"
    RED = "red"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Workload:
    """One comparison.

    Attributes:
        name: of the file, or of the comparison that a user made up.
        question: what it answers, one sentence.
        compares: what the paired ratio is made of.
        blocks: how often every arm runs.
        common: overrides of every arm.
        arms: overrides of each arm by name; the first arm is the baseline.
        mark: what it asks of a flag, where its arms have rows in the ledger; None: they have none.
    """

    name: str
    question: str
    compares: MeasureName
    blocks: int
    common: tuple[str, ...]
    arms: Mapping[str, tuple[str, ...]]
    mark: Mark | None = None

    @property
    def task(self) -> str:
        """The task that all arms share."""
        named = [line.partition("=")[2] for line in self.common if record.key_of(line) == "task"]
        return named[-1] if named else str(TaskName.DETECT)

    @property
    def baseline(self) -> str:
        """The arm that the others are compared with."""
        return next(iter(self.arms))

    def overrides(self, arm: str) -> tuple[str, ...]:
        """What an arm runs with; its own overrides win over the common ones."""
        return tuple(record.replace(self.common, self.arms[arm]))

    def is_part_of(self, other: Workload) -> bool:
        """Whether every run of it is one of another's: the same common overrides, and arms that the other has too."""
        return set(self.common) == set(other.common) and self.arms.items() <= other.arms.items()

    def narrowed(
        self, *, arms: Sequence[str] | None = None, blocks: int | None = None, more: Sequence[str] = ()
    ) -> Workload:
        """The same with fewer arms, other blocks, and further overrides for all arms.

        With another baseline or further overrides it is another workload: its name says so, and it marks no flag.

        Args:
            arms: names to keep, in this order, so that the first is the baseline; None: all of them.
            blocks: None: those of the file.
            more: overrides that win over the common ones.

        Raises:
            ConfigError: an unknown arm, fewer than two, no block, or an override that a comparison decides itself.
        """
        problems = [
            f"There is no arm {arm!r} in {self.name}.{did_you_mean(arm, self.arms)} Arms: {', '.join(self.arms)}."
            for arm in arms or ()
            if arm not in self.arms
        ]
        kept = {arm: self.arms[arm] for arm in arms or self.arms if arm in self.arms}
        if not problems and len(kept) < 2:
            problems.append("A comparison needs two arms: the first one is the baseline.")
        blocks = self.blocks if blocks is None else blocks
        if blocks < 1:
            problems.append(f"blocks={blocks}: at least one block is needed.")
        problems += _reserved(more)
        if problems:
            raise ConfigError(problems)
        changes = [f"against {arm}" for arm in [next(iter(kept))] if arm != self.baseline] + list(more)
        return replace(
            self,
            name=" ".join((self.name, *changes)),
            mark=None if changes else self.mark,
            arms=kept,
            blocks=blocks,
            common=tuple(record.replace(self.common, more)),
        )


def workload_names() -> tuple[str, ...]:
    """Names of the workloads that come with the package."""
    folder = workloads_folder()
    return tuple(sorted(path.stem for path in folder.glob("*.yaml"))) if folder is not None else ()


def workloads_folder() -> Path | None:
    """Where the workloads lie: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    places = (package / "multirun_sweeps" / FOLDER, package.parent / "multirun_sweeps" / FOLDER)
    return next((place for place in places if place.is_dir()), None)


def read_workload(name: str) -> Workload:
    """Read a workload.

    Args:
        name: of one that comes with the package, or a file ``PATH.yaml`` of the user's own.

    Raises:
        ConfigError: there is no such workload, or everything that is wrong with its file.
    """
    return _read(_find(name, Path()), ())


def _find(name: str, folder: Path) -> Path:
    """The file of a workload: one of the package by its name, or the user's own, relative to a folder."""
    if name.endswith((".yaml", ".yml")):
        return resolve_user_path(folder / Path(name).expanduser())
    own = workloads_folder()
    if own is None or not (own / f"{name}.yaml").is_file():
        names = workload_names()
        raise ConfigError(
            [
                f"There is no workload {name!r}.{did_you_mean(name, names)} Workloads: {', '.join(names)}; "
                "or name a file of your own, PATH.yaml."
            ]
        )
    return own / f"{name}.yaml"


def _read(path: Path, above: tuple[Path, ...]) -> Workload:
    """Read a file and those that it is based on.

    Args:
        path: of the file.
        above: files that are based on it.
    """
    if path in above:
        raise ConfigError([f"{path} is based on itself: {' -> '.join(one.name for one in (*above, path))}."])
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _NoKeyTwice)  # a SafeLoader
    except OSError as error:
        raise ConfigError([f"{path} cannot be read: {error.strerror}."]) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path} cannot be read as YAML: {' '.join(str(error).split())}"]) from None
    if not isinstance(content, dict):
        raise ConfigError([f"{path} must hold a mapping with the keys {', '.join(_KEYS)}."])
    base = content.get(BASE)
    if base is None:
        return _workload(path.stem, content, where=str(path))
    if not isinstance(base, str):
        raise ConfigError([f"{path}: {BASE} must be the name of a workload or a file PATH.yaml, found {base!r}."])
    below = _read(_find(base, path.parent), (*above, path))
    return _workload(path.stem, _upon(below, content), where=str(path))


def _upon(base: Workload, content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a file with what it takes over: common overrides of its base, and every key that it leaves out."""
    taken = {key: getattr(base, key) for key in ("question", "compares", "blocks", "mark")}
    taken |= {"common": list(base.common), "arms": {arm: list(lines) for arm, lines in base.arms.items()}}
    merged = {**taken, **content}
    if _is_lines(merged["common"]):
        merged["common"] = record.replace(base.common, merged["common"])
    return merged


def check_arms(arms: object) -> None:
    """Check that something handed over from Python names arms, or a workload, or nothing.

    Raises:
        ConfigError: it does not.
    """
    if arms is not None and not isinstance(arms, (str, Mapping)):
        raise ConfigError(
            [f"Name the arms, {{'eager': [], 'cached': ['cache=decoded']}}, or a workload; found {arms!r}."]
        )


def make_workload(
    arms: Mapping[str, Sequence[str]], *, common: Sequence[str] = (), blocks: int = 3, compares: str = "complete_fit"
) -> Workload:
    """A workload that is no file.

    Args:
        arms: overrides by name; the first is the baseline.
        common: overrides of all arms.
        blocks: how often every arm runs.
        compares: "complete_fit", "step" or "image".

    Raises:
        ConfigError: everything that is wrong with it.
    """
    content = {
        "question": "",
        "compares": compares,
        "blocks": blocks,
        "common": list(common),
        "arms": {name: list(lines) if isinstance(lines, (list, tuple)) else lines for name, lines in arms.items()},
    }
    return _workload("own", content, where="The comparison")


class _NoKeyTwice(yaml.SafeLoader):  # type: ignore[misc]
    """YAML in which no key may stand twice: the second arm of a name would silently be the only one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Make a mapping, see ``yaml.SafeLoader``."""
        written = [key.value for key, _ in node.value]
        for position, key in enumerate(written):
            if key in written[:position]:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", node.start_mark)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


_KEYS = (BASE, "question", "compares", "blocks", "mark", "common", "arms")


def _workload(name: str, content: Mapping[str, Any], *, where: str) -> Workload:
    problems = [
        f"{where}: there is no key {str(key)!r}.{did_you_mean(str(key), _KEYS)} Keys: {', '.join(_KEYS)}."
        for key in content
        if key not in _KEYS
    ]
    compares, blocks = content.get("compares", "complete_fit"), content.get("blocks", 3)
    question, common, arms = content.get("question", ""), content.get("common", []), content.get("arms")
    if compares not in list(MeasureName):
        problems.append(f"{where}: compares must be one of {', '.join(MeasureName)}, found {compares!r}.")
    mark = content.get("mark")
    if mark is not None and mark not in list(Mark):
        problems.append(f"{where}: mark must be one of {', '.join(Mark)}, or be left out, found {mark!r}.")
    if isinstance(blocks, bool) or not isinstance(blocks, int) or blocks < 1:
        problems.append(f"{where}: blocks must be a whole number of at least 1, found {blocks!r}.")
    if not isinstance(question, str):
        problems.append(f"{where}: question must be a sentence, found {question!r}.")
    if not _is_lines(common):
        problems.append(f"{where}: common must be a list of overrides, key=value, found {common!r}.")
        common = []
    if not isinstance(arms, dict) or len(arms) < 2:
        problems.append(f"{where}: arms must name at least two arms with their overrides; the first is the baseline.")
        arms = {}
    for arm, lines in arms.items():
        if not isinstance(arm, str) or not _is_file_name(arm):
            problems.append(
                f"{where}: {arm!r} is no name of an arm: it names a folder, use letters, digits, '-', '_', '+'."
            )
        if not _is_lines(lines):
            problems.append(f"{where}: arm {arm} must be a list of overrides, key=value, found {lines!r}.")
    lists = [common, *(lines for lines in arms.values() if _is_lines(lines))]
    problems += [f"{where}: {text}" for lines in lists for text in _reserved(lines)]
    if problems:
        raise ConfigError(problems)
    return Workload(
        name=name,
        question=question.strip(),
        compares=MeasureName(compares),
        blocks=blocks,
        common=tuple(common),
        arms={arm: tuple(lines) for arm, lines in arms.items()},
        mark=None if mark is None else Mark(mark),
    )


def _reserved(lines: Sequence[str]) -> list[str]:
    return [
        f"{line!r}: a comparison decides {', '.join(RESERVED)} itself: leave it out."
        for line in lines
        if record.key_of(line) in RESERVED
    ]


def _is_lines(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(line, str) and "=" in line.lstrip("~") for line in value)


def _is_file_name(text: str) -> bool:
    return bool(text) and all(letter.isalnum() or letter in "-_+" for letter in text)
