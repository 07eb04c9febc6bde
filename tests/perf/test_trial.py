"""What a trial of recordings decides, with numbers that are worked out by hand."""

from __future__ import annotations

import pytest
from rich.console import Console

from lucid_yolo.perf.trial import Trial, pick, table_of

EAGER = Trial(option="none", step_ms=80.0, reserved_mib=1000)
REGIONS = Trial(option="network+loss", step_ms=40.0, setup_seconds=2.0, reserved_mib=1200)
STEP = Trial(option="step", step_ms=10.0, setup_seconds=7.0, reserved_mib=1100)


@pytest.mark.parametrize(
    ("steps", "option"),
    [
        (40, "none"),  # 2 s are repaid after 50 steps of 40 ms, 7 s after 100 steps of 70 ms
        (60, "network+loss"),  # 2.0 + 60 * 0.04 = 4.4 s; none: 4.8 s
        (150, "network+loss"),  # 8.0 s; step: 7.0 + 150 * 0.01 = 8.5 s; none: 12 s
        (200, "step"),  # 9.0 s; network+loss: 10.0 s
    ],
)
def test_the_whole_run_decides(steps: int, option: str) -> None:
    picked = pick([EAGER, REGIONS, STEP], steps=steps, memory_mib=10_000)
    assert picked.option == option
    assert picked.verdicts[1] == ("would be repaid after 50 steps only" if steps <= 50 else "repaid after 50 steps")
    assert picked.verdicts[2] == ("would be repaid after 100 steps only" if steps <= 100 else "repaid after 100 steps")


def test_the_reason_has_the_numbers() -> None:
    picked = pick([EAGER, REGIONS, STEP], steps=1000, memory_mib=10_000)  # 17 s instead of 80 s
    assert picked.reason == (
        "picked step: 10.0 ms a step instead of 80.0, which saves 79 % of the 1000 steps of this run, set-up included"
    )


def test_what_does_not_fit_or_was_not_measured_is_not_picked() -> None:
    broken = Trial(option="network+loss", error="The GPU ran out of memory")
    picked = pick([EAGER, broken, STEP], steps=10_000, memory_mib=1200)
    assert picked.option == "none"
    assert picked.reason.startswith("nothing is recorded: no candidate is faster than the eager step of 80.0 ms")
    assert picked.verdicts[1:] == ("The GPU ran out of memory", "takes more than 90 % of the 1200 MiB of the device")
    assert pick([EAGER, broken, STEP], steps=10_000, memory_mib=1223).option == "step"  # 90 % are 1100.7 MiB


def test_a_gain_within_the_noise_is_none() -> None:
    for step_ms, option in ((77.7, "none"), (77.5, "step")):  # 3 % of 80 ms are 2.4 ms
        trial = Trial(option="step", step_ms=step_ms)
        assert pick([EAGER, trial], steps=10**6, memory_mib=10_000).option == option


def test_without_the_eager_step_nothing_is_picked() -> None:
    picked = pick([Trial(option="none", error="no time was left"), STEP], steps=10**6, memory_mib=10_000)
    assert (picked.option, len(picked.verdicts)) == ("none", 2)
    assert "could not be timed (no time was left)" in picked.reason


def test_the_table_shows_every_candidate() -> None:
    trials = [EAGER, Trial(option="network+loss", error="cannot be had"), STEP]
    console = Console(width=140, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as shown:
        console.print(table_of(trials, pick(trials, steps=1000, memory_mib=10_000)))
    text = shown.get()
    assert all(trial.option in text for trial in trials)
    assert "cannot be had" in text
    assert "repaid after 100 steps" in text
