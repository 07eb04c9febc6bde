"""summary.json: the results of a run under names that tools can rely on."""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from lucid_yolo.engine.timing import FitTiming
from lucid_yolo.perf.plan import RunPlan

MIB = 1024 * 1024
TIMING_KEYS = (
    "total_seconds",
    "fit_seconds",
    "first_step_seconds",
    "step_ms_median",
    "images_per_second",
    "data_wait_share",
)
MEMORY_KEYS = ("peak_allocated_mib", "peak_reserved_mib", "host_peak_mib", "largest_worker_peak_mib")


@dataclass(frozen=True)
class TrainResult:
    """What a training run hands back.

    Attributes:
        status: "finished" or "interrupted".
        run_dir: folder with everything about the run.
        checkpoint: best checkpoint; None when no epoch was validated.
        metrics: scores of the best checkpoint (averaged weights, both decodes).
        plan: which flags were active and why not.
        timing: seconds, step time, images a second, share of waiting for data.
        memory: peaks of the device and the host, MiB.
    """

    status: str
    run_dir: Path
    checkpoint: Path | None
    metrics: Mapping[str, float | None]
    plan: RunPlan
    timing: Mapping[str, float | None]
    memory: Mapping[str, float | None]
    model: Mapping[str, float | int] = field(default_factory=dict)


def timing_values(timing: FitTiming, *, total_seconds: float, fit_seconds: float) -> dict[str, float | None]:
    """Block ``timing`` of the summary."""
    return {
        "total_seconds": total_seconds,
        "fit_seconds": fit_seconds,
        "first_step_seconds": timing.first_step_seconds,
        "step_ms_median": timing.step_ms_median,
        "images_per_second": timing.images_per_second,
        "data_wait_share": timing.data_wait_share,
    }


def memory_values(device: torch.device) -> dict[str, float | None]:
    """Block ``memory`` of the summary, MiB: device peaks (CUDA only), the process's and its workers' resident peaks."""
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss counts bytes there and KiB on Linux
    cuda = device.type == "cuda"
    return {
        "peak_allocated_mib": torch.cuda.max_memory_allocated(device) / MIB if cuda else None,
        "peak_reserved_mib": torch.cuda.max_memory_reserved(device) / MIB if cuda else None,
        "host_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MIB,
        "largest_worker_peak_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit / MIB or None,
    }
