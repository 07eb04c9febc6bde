"""Made-up runs of arms, for reports without a training."""

from __future__ import annotations

from typing import Any

from lucid_yolo.bench.arms import ArmRun
from lucid_yolo.bench.comparison import Comparison
from lucid_yolo.bench.step_profile import StepProfile
from lucid_yolo.config.workloads import Mark, MeasureName, Workload

PLACE = {
    "device": "a card",
    "driver": "1.2",
    "versions": {"torch": "9.9", "lucid-yolo-lab": "0.1.0"},
    "commit": "abc",
    "cores": 8,
}


def make_run(arm: str, pair: int, seconds: float, **changes: Any) -> ArmRun:
    """A run that counts: ``seconds`` in all, twice as many milliseconds a step, 1000 / ``seconds`` images a second."""
    values: dict[str, Any] = {
        "timing": {
            "total_seconds": seconds,
            "fit_seconds": seconds / 2,
            "first_step_seconds": 1.0,
            "step_ms_median": 2.0 * seconds,
            "images_per_second": 1000.0 / seconds,
            "data_wait_share": 0.0,
        },
        "memory": {"peak_allocated_mib": 10.0, "peak_reserved_mib": 20.0 + seconds, "host_peak_mib": 1.0},
        "primary": 0.5,
        "flags": {"precision": "bf16-mixed", "deterministic": "strict"},
        "data": {"train_images": 100, "batch_size": 4, "image_size": 640},
        "environment": PLACE,
        **changes,
    }
    return ArmRun(arm=arm, pair=pair, wall_seconds=seconds + 1, **values)


def make_workload(*arms: str, mark: Mark | None = Mark.GAIN, name: str = "made_up") -> Workload:
    """Arms of a flag that does not exist; the first one is the baseline."""
    return Workload(
        name=name,
        question="Is it faster?",
        compares=MeasureName.COMPLETE_FIT,
        blocks=3,
        common=("data=made",),
        arms={arm: (f"magic={arm}",) if position else () for position, arm in enumerate(arms)},
        mark=mark,
    )


def make_report(
    seconds: dict[str, list[float]], *, mark: Mark | None = Mark.GAIN, name: str = "made_up", **changes: Any
) -> Comparison:
    """A report in which each arm took these seconds, pair by pair; the first arm is the baseline."""
    runs = [
        make_run(arm, pair, value, **changes)
        for arm, values in seconds.items()
        for pair, value in enumerate(values, start=1)
    ]
    return Comparison(make_workload(*seconds, mark=mark, name=name), tuple(runs), "2026-01-02")


def make_profile(ms: float, *, part: str = "loss", **flags: Any) -> StepProfile:
    """A profile in the place of the runs: a part takes so many of 100 ms of the host."""
    return StepProfile(
        steps=1,
        step_ms=100.0,
        wait_ms=0.0,
        host_ms={"forward": 100.0 - ms, part: ms},
        synchronised_ms={},
        device_busy_ms=None,
        launches=1.0,
        synchronisations=None,
        flags={"precision": "bf16-mixed", "deterministic": "strict", **flags},
        data={"train_images": 100, "batch_size": 4, "image_size": 640},
        environment=PLACE,
    )
