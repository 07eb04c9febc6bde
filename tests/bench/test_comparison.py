"""Reports of comparisons, computed by hand from made-up runs."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from lucid_yolo.bench.arms import ArmRun
from lucid_yolo.bench.comparison import Comparison
from lucid_yolo.config.workloads import MeasureName
from tests.bench.runs import PLACE, make_report, make_run, make_workload


def test_ratios_are_made_within_a_pair() -> None:
    report = make_report({"eager": [10.0, 20.0, 40.0], "magic": [9.0, 16.0, 28.0]})
    base, arm = report.arms
    ratio = arm.ratios[MeasureName.COMPLETE_FIT]
    assert ratio.ratios == pytest.approx((0.9, 0.8, 0.7))  # medians of the arms would give 16 / 20 = 0.8 by chance
    assert arm.ratios[MeasureName.STEP].ratios == pytest.approx((0.9, 0.8, 0.7))
    assert arm.ratios[MeasureName.IMAGE].ratios == pytest.approx((0.9, 0.8, 0.7))  # fewer seconds, more images
    assert base.ratios == {}
    assert (base.medians["complete_fit"], base.medians["wall"], base.medians["reserved"]) == (20.0, 21.0, 40.0)
    (row,) = report.ratio_rows()[1][1:]
    assert row == ("magic", "3", "0.8000", "0.7000 to 0.9000", "spread, 75 %", "20.0 %", "faster", "")


def test_a_pair_needs_both_runs() -> None:
    workload = make_workload("eager", "magic")
    failed = ArmRun(arm="magic", pair=1, error="no luck")
    runs = [make_run("eager", 1, 10.0), failed, make_run("eager", 2, 20.0), make_run("magic", 2, 10.0)]
    runs += [ArmRun(arm="eager", pair=3, error="gone"), make_run("magic", 3, 10.0)]
    report = Comparison.of(workload, runs)
    _, arm = report.arms
    assert arm.ratios[MeasureName.COMPLETE_FIT].ratios == (0.5,)
    assert (arm.runs, arm.errors, report.ok) == (2, ("no luck",), False)
    assert "magic failed 1x: no luck" in report.sentences()
    assert report.ratio_rows()[1][1][4:7] == ("", "50.0 %", "undecided")


def test_break_even_by_hand() -> None:
    # An image takes 10 ms and 8 ms, an epoch of 100 images 1.0 s and 0.8 s: 0.5 s of set-up come back after 2.5 epochs.
    report = make_report({"eager": [10.0], "magic": [8.0]})
    base, arm = report.runs
    saving = Comparison.of(report.workload, [base, replace(arm, setup_seconds=0.5)])
    assert saving.arms[1].break_even == pytest.approx(2.5)
    assert saving.ratio_rows()[1][1][-1] == "2.5"
    losing = Comparison.of(report.workload, [replace(base, timing=arm.timing), replace(arm, setup_seconds=0.5)])
    assert losing.ratio_rows()[1][1][-1] == "never"
    assert report.arms[1].break_even is None


@pytest.mark.parametrize(
    ("change", "name"), [({"commit": "def"}, "commit"), ({"driver": "1.3"}, "driver"), ({"cores": 4}, "cores")]
)
def test_different_environments_are_an_error(change: dict[str, object], name: str) -> None:
    report = make_report({"eager": [10.0, 10.0], "magic": [9.0, 9.0]})
    *others, last = report.runs
    mixed = Comparison.of(report.workload, [*others, replace(last, environment={**PLACE, **change})])
    assert report.problems == ()
    assert report.ok
    (problem,) = mixed.problems
    assert f"differ in {name}" in problem
    assert "magic, pair 2" in problem
    assert not mixed.ok
    assert mixed.ratio_rows()[1][1][-2] == "not comparable"


def test_json_and_back() -> None:
    report = make_report({"eager": [10.0, 20.0, 10.0], "magic": [9.0, 30.0, 10.0]})
    values = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert Comparison.from_dict(values) == report
    ratio = values["arms"][1]["ratios"]["complete_fit"]
    assert (ratio["pairs"], ratio["verdict"]) == ([0.9, 1.5, 1.0], "no difference")
    assert ratio["interval"]["coverage"] == 0.75
    assert values["environment"]["device"] == "a card"


def test_tables_show_only_what_was_measured() -> None:
    report = make_report({"eager": [10.0], "magic": [9.0]})
    header, rows = report.median_rows()
    assert header == ("median", "unit", "eager", "magic")
    names = [row[0] for row in rows]
    assert "reserved" in names
    assert "set-up" not in names
    page = report.to_markdown()
    assert "| reserved | MiB | 30 | 29 |" in page
    assert "a card, driver 1.2, torch 9.9, commit abc, 8 cores, 2026-01-02." in page


def test_notebook_and_terminal_show_the_same() -> None:
    report = make_report({"eager": [10.0, 20.0, 10.0], "magic": [5.0, 10.0, 5.0]})
    page = report._repr_html_()
    assert page.startswith("<pre")
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(report)
    for text in ("0.5000", "50.0 %", "faster", "Is it faster?", "spread, 75 %"):
        assert text in page
        assert text in console.export_text(clear=False)
