"""Notes of the run plan: what a user should know before a run starts and that changes nothing."""

from __future__ import annotations

from lucid_yolo.perf.rules import DataFacts, Facts


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
    return (*notes, *facts.data.notes)


def _count(data: DataFacts) -> str:
    return f"{data.num_train} training and {data.num_val} validation pictures."
