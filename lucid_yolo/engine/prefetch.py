"""What preparing the next epoch's batches ahead did in a run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from lucid_yolo.config.schema import PrefetchName
from lucid_yolo.data.loader import TrainLoader
from lucid_yolo.perf.plan import RunPlan, Scalar


def prefetch_outcome(plan: RunPlan, loader: TrainLoader) -> Mapping[str, Scalar]:
    """What the plan says about ``prefetch`` at the end; empty where it was not active.

    Args:
        plan: of the run.
        loader: its training batches.

    Returns:
        epochs that could be prepared ahead (the first one cannot), and the mean wait for their first batches.
    """
    if plan["prefetch"].active == PrefetchName.NONE:
        return {}
    waits = loader.first_waits[1:]
    outcome: dict[str, Scalar] = {"epochs": len(waits)}
    if waits:
        outcome["first_batch_seconds"] = round(statistics.mean(waits), 4)
    return outcome
