"""Notes of the run plan: what a user should know before a run starts and that changes nothing."""

from __future__ import annotations

from lucid_yolo.config.schema import CacheName
from lucid_yolo.perf.rules import DataFacts, Facts, gib


def write_notes(facts: Facts) -> tuple[str, ...]:
    """One sentence a note; none where the data was not read.

    Args:
        facts: configuration, machine and data.
    """
    if facts.data is None:
        return ()
    size, batch = facts.config.data.image_size, facts.config.data.batch_size
    notes = [_count(facts.data)]
    if facts.data.num_larger:
        width, height = facts.data.largest
        notes.append(
            f"{facts.data.num_larger} training pictures are larger than the {size} px canvas "
            f"(up to {width} x {height}) and are scaled down; data.image_size sets the canvas."
        )
    if batch > facts.data.num_train:
        notes.append(
            f"data.batch_size={batch} is larger than the {facts.data.num_train} training pictures: "
            "a batch holds some of them more than once."
        )
    augment, epochs = facts.config.data.augment, facts.config.trainer.max_epochs
    if (augment.mosaic > 0 or augment.mixup > 0) and augment.close_mosaic >= epochs:
        notes.append(
            f"Mosaic and mixup never happen: data.augment.close_mosaic={augment.close_mosaic} switches them off "
            f"for the last epochs, and trainer.max_epochs={epochs} has no others."
        )
    warmup = facts.config.optimizer.warmup_epochs
    if 2 * warmup > epochs:
        notes.append(
            f"optimizer.warmup_epochs={warmup:g} of trainer.max_epochs={epochs}: the learning rate rises for more than "
            "half of the run, which learns little; a shorter warm-up suits a short run."
        )
    return (*notes, *_cache(facts.data, facts.config.cache.selected, size), *facts.data.notes)


def _count(data: DataFacts) -> str:
    return f"{data.num_train} training and {data.num_val} validation pictures."


def _cache(data: DataFacts, selected: CacheName, image_size: int) -> tuple[str, ...]:
    """Which kind of cache suits the pictures."""
    decoded, prepared = (data.cache_bytes[kind] for kind in (CacheName.DECODED, CacheName.PREPARED))
    if selected is CacheName.DECODED and data.num_larger:
        return (
            f"cache=prepared can help: it keeps pictures at training resolution, {gib(prepared)} instead of "
            f"{gib(decoded)}, and scales them only once.",
        )
    if selected is CacheName.PREPARED and not data.num_larger:
        return (
            f"No training picture is larger than the {image_size} px canvas: cache=decoded does the same with "
            f"{gib(decoded)} instead of {gib(prepared)}.",
        )
    return ()
