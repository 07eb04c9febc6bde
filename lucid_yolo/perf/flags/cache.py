"""``cache``: training pictures that are kept instead of decoded again."""

from __future__ import annotations

from collections.abc import Callable

from lucid_yolo.config.schema import CacheName, CachePlace
from lucid_yolo.perf.flag import Choice, Flag
from lucid_yolo.perf.machine import Machine
from lucid_yolo.perf.rules import Facts, Kind, Rule, Stage, gib

SHARE = 0.8
"""Part of the free room that a cache may take; the run itself needs the rest."""


def _is_selected(facts: Facts, place: CachePlace) -> bool:
    return facts.config.cache.selected is not CacheName.NONE and facts.config.cache.place is place


def _estimate(facts: Facts) -> int:
    """Bytes of the cache that is asked for."""
    assert facts.data is not None
    return facts.data.cache_bytes[facts.config.cache.selected]


def _is_too_large(facts: Facts, free: int) -> bool:
    assert facts.data is not None
    return not facts.data.cache_exists and _estimate(facts) > SHARE * free


def _words(facts: Facts) -> dict[str, str]:
    assert facts.data is not None
    kinds = (kind for kind in (CacheName.DECODED, CacheName.PREPARED) if kind is not facts.config.cache.selected)
    return {
        "estimate": gib(_estimate(facts)),
        "memory": gib(facts.machine.memory_available),
        "disk": gib(facts.machine.cache_disk_free),
        "other": " and ".join(f"cache={kind} {gib(facts.data.cache_bytes[kind])}" for kind in kinds),
    }


def _choose(facts: Facts) -> Choice:
    cache = facts.config.cache
    if cache.selected is CacheName.NONE or facts.data is None:
        return Choice(value=str(cache.selected))
    in_memory = cache.place is CachePlace.MEMORY
    if facts.data.cache_exists:
        where = "this process" if in_memory else "the cache directory"
        return Choice(value=str(cache.selected), reason=f"{gib(_estimate(facts))}, held by {where} already")
    free = facts.machine.memory_available if in_memory else facts.machine.cache_disk_free
    where = "memory" if in_memory else "disk space"
    return Choice(value=str(cache.selected), reason=f"takes {gib(_estimate(facts))} of {gib(free)} free {where}")


def _fits(place: CachePlace, *, free: Callable[[Machine], int], room: str, way_out: str) -> Rule:
    """Refuse a cache that is larger than its share of the free room.

    Args:
        place: where it lies.
        free: bytes that are free there.
        room: the same in words.
        way_out: what else could be done about that place.
    """
    return Rule(
        id=f"cache.fits-{place}",
        stage=Stage.DATA,
        kind=Kind.REFUSE,
        applies=lambda facts: _is_selected(facts, place) and _is_too_large(facts, free(facts.machine)),
        sentence="cache={config.cache.selected} takes {estimate} for {data.num_train} training pictures, and may take "
        f"{SHARE:.0%} {room}; {{other}} would be the alternative, {way_out}, cache=none keeps nothing",
        words=_words,
    )


FLAGS = (
    Flag(
        key="cache",
        option="cache=none|decoded|prepared",
        summary="Keeps training pictures, as decoded or scaled to training resolution, in one block that all workers "
        "share: in memory, or with cache.place=disk in a file that later runs use again.",
        requested=lambda facts: str(facts.config.cache.selected),
        choose=_choose,
        fallback="none",
        rules=(
            Rule(
                id="cache.memory-needs-linux",
                stage=Stage.MACHINE,
                kind=Kind.FALLBACK,
                applies=lambda facts: facts.machine.os != "Linux" and _is_selected(facts, CachePlace.MEMORY),
                sentence="cache.place=memory needs anonymous memory files, which Linux has and {machine.os} has not; "
                "cache.place=disk runs everywhere",
            ),
            _fits(
                CachePlace.MEMORY,
                free=lambda machine: machine.memory_available,
                room="of the available memory of {memory}",
                way_out="cache.place=disk keeps it in a file",
            ),
            _fits(
                CachePlace.DISK,
                free=lambda machine: machine.cache_disk_free,
                room="of the {disk} that are free where the user's cache directory lies",
                way_out="LUCID_YOLO_CACHE names another directory",
            ),
        ),
    ),
)
