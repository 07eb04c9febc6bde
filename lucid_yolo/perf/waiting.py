"""What a run that waited for its data can do about it the next time."""

from __future__ import annotations

from lucid_yolo.config.schema import CacheName, HsvName, PrefetchName
from lucid_yolo.perf.plan import RunPlan

WORTH_SAYING = 0.1
"""Share of the training time; below it the loader is not what a run could be made faster by."""


def advise_on_waiting(share: float | None, plan: RunPlan, *, workers: int, epochs: int) -> str | None:
    """Name the flags that would take work from the loader, and were not active.

    Args:
        share: of the training time that was spent waiting for data; None where it was not measured.
        plan: what was active.
        workers: processes that prepared batches.
        epochs: of the run.

    Returns:
        a sentence, or None where there is nothing to say.
    """
    if share is None or share < WORTH_SAYING:
        return None
    on_cuda = plan["accelerator"].active == "cuda"
    helps = []
    if plan["cache"].active == CacheName.NONE:
        helps.append("cache=decoded")
    if on_cuda and plan["hsv"].active == HsvName.WORKER:
        helps.append("hsv=device")
    if on_cuda and workers and epochs > 1 and plan["prefetch"].active == PrefetchName.NONE:
        helps.append("prefetch=epoch")
    if workers < plan.machine.cores - 1:
        helps.append(f"data.num_workers above {workers}")
    if not helps:
        return None
    return f"{share:.0%} of the training time went into waiting for data. What may help: {', '.join(helps)}."
