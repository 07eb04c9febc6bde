"""The rule table: when a requested option cannot be had, and the sentence that says so.

A rule is a row, never an ``if`` elsewhere. Flags carry their rules (``perf.flag``), modules in ``perf.flags`` carry the
flags, and the documentation is generated from both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from lucid_yolo.config.regions import ALONE, GROUP, JOIN, OPTIONS
from lucid_yolo.config.schema import CacheName, RootConfig
from lucid_yolo.data.cache import cache_bytes
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.perf.live import LiveFacts
from lucid_yolo.perf.machine import Machine


class Stage(StrEnum):
    """What a rule has to know: ``resolve`` judges three, ``judge_setup`` those of a built model."""

    CONFIG = "config"
    MACHINE = "machine"
    DATA = "data"
    SETUP = "setup"
    STEP = "step"


class Kind(StrEnum):
    """What a rule does: stop the run before anything is built, or go on without the option and say so."""

    REFUSE = "refuse"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFacts:
    """What rules may know about the data, from the annotations and the image headers.

    Attributes:
        num_train: training pictures.
        num_val: validation pictures.
        num_larger: training pictures with a side longer than the training canvas.
        largest: width and height of the training picture with the most pixels.
        cache_bytes: what each kind of cache of the training pictures takes.
        cache_exists: the cache that is asked for was made before and takes nothing more.
        num_workers: loader processes that the run will have; None where that is not decided.
        notes: what the reader found worth telling.
    """

    num_train: int
    num_val: int
    num_larger: int
    largest: tuple[int, int]
    cache_bytes: Mapping[CacheName, int]
    cache_exists: bool = False
    num_workers: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything a rule may look at.

    Attributes:
        config: what is asked for.
        machine: what there is.
        data: None where a plan is made without reading the data set; rules of stage ``data`` are then left out.
        live: None before the objects of a fit are built; rules of stage ``setup`` are then left out.
    """

    config: RootConfig
    machine: Machine
    data: DataFacts | None
    live: LiveFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row.

    Attributes:
        id: short and stable; messages, plans and documentation name it.
        stage: what it has to know.
        kind: refuse or fall back.
        applies: whether the option cannot be had; sees nothing but the facts.
        sentence: template over ``config``, ``machine``, ``data`` and ``words``: what was found and what would satisfy
            the rule.
        words: further words of the sentence, by name.
    """

    id: str
    stage: Stage
    kind: Kind
    applies: Callable[[Facts], bool]
    sentence: str
    words: Callable[[Facts], Mapping[str, str]] = lambda _: {}

    def explain(self, facts: Facts) -> str:
        """The sentence that a user reads."""
        return self.sentence.format(config=facts.config, machine=facts.machine, data=facts.data, **self.words(facts))


def broken_rules(rules: Sequence[Rule], facts: Facts) -> tuple[Rule, ...]:
    """The rules that apply, as far as these facts can tell: config and machine, and data where it was read."""
    stages = {Stage.CONFIG, Stage.MACHINE} | ({Stage.DATA} if facts.data is not None else set())
    return tuple(rule for rule in rules if rule.stage in stages and rule.applies(facts))


def needs_cuda(id: str, *, asked: Callable[[Facts], bool], claim: str, otherwise: str = "") -> Rule:
    """The row of a flag that falls back where the run does not compute on CUDA.

    Args:
        id: of the rule.
        asked: whether the configuration asks for what the flag does.
        claim: how the sentence begins: what it does, or needs, that only CUDA has.
        otherwise: how it ends.
    """
    return Rule(
        id=id,
        stage=Stage.MACHINE,
        kind=Kind.FALLBACK,
        applies=lambda facts: asked(facts) and facts.machine.accelerator != "cuda",
        sentence=f"{claim}, this run computes on {{machine.accelerator}} ({{machine.accelerator_reason}}){otherwise}",
    )


def goes_alone(option: str) -> Rule:
    """The row of an option of ``capture`` that goes with no other.

    Args:
        option: one of ``ALONE``.
    """

    def others(facts: Facts) -> str:
        capture = facts.config.capture
        return JOIN.join(name for name in OPTIONS if name != option and getattr(capture, name).selected)

    return Rule(
        id=f"{GROUP}.{option}.alone",
        stage=Stage.CONFIG,
        kind=Kind.REFUSE,
        applies=lambda facts: bool(getattr(facts.config.capture, option).selected and others(facts)),
        sentence=f"{GROUP}={option} goes alone: it {ALONE[option]}; select it or {{others}}",
        words=lambda facts: {"others": others(facts)},
    )


def gib(nbytes: int) -> str:
    """Bytes for a sentence."""
    return f"{nbytes / 1024**3:.2f} GiB"


def data_facts(
    train: SplitIndex, val: SplitIndex, *, image_size: int, cache_exists: bool = False, num_workers: int | None = None
) -> DataFacts:
    """Condense two splits into what rules and notes need.

    Args:
        train: training split.
        val: validation split.
        image_size: side of the training canvas in pixels.
        cache_exists: the cache that is asked for was made before.
        num_workers: loader processes that the run will have.
    """
    sizes = train.sizes.astype(np.int64)
    width, height = sizes[int(sizes.prod(axis=1).argmax())]
    return DataFacts(
        num_train=len(train),
        num_val=len(val),
        num_larger=int((sizes.max(axis=1) > image_size).sum()),
        largest=(int(width), int(height)),
        cache_bytes={kind: cache_bytes(train.sizes, kind, image_size) for kind in CacheName},
        cache_exists=cache_exists,
        num_workers=num_workers,
        notes=_notes(train, val),
    )


def _notes(train: SplitIndex, val: SplitIndex) -> tuple[str, ...]:
    """Notes of the readers with the name of their split; one that both have says it of both."""
    shared = set(train.notes) & set(val.notes)
    named = (note if note in shared else f"{split.name}: {note}" for split in (train, val) for note in split.notes)
    return tuple(dict.fromkeys(named))
