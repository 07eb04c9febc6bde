"""Shares of arms: told by two profiles, which have to be of that arm, of its workload and of the report's machine."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest

from lucid_yolo.bench import book
from lucid_yolo.bench.comparison import Comparison
from lucid_yolo.bench.ledger import Entry, Judgement, Share, State, judge, read_ledger
from lucid_yolo.bench.ledger_table import HEADER, ledger_rows
from lucid_yolo.bench.profiled import RECORDED, read_profile
from lucid_yolo.bench.step_profile import StepProfile
from lucid_yolo.config.errors import RunError
from lucid_yolo.config.regions import REGIONS
from lucid_yolo.config.workloads import ParityState, read_workload
from tests.bench.runs import PLACE, make_profile, make_report

OFF = {f"capture.{name}": False for name in ("network", "loss", "gradient_norm", "updates", "step")}
LOSS = {**OFF, "capture.loss": True}


class Desk:
    """A ledger, and files to book into it.

    Args:
        folder: for all of them.
        capsys: hears why something is refused.
    """

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.ledger = folder / "ledger.json"
        self._folder = folder
        self._capsys = capsys

    def share(self, arm: str, eager: StepProfile, flagged: StepProfile, *, part: str = "loss") -> list[str]:
        """Arguments that book a share; the files are ``eager.json`` and ``flagged.json``."""
        files = {"eager": eager, "flagged": flagged}
        for name, profile in files.items():
            (self._folder / f"{name}.json").write_text(json.dumps(profile.as_dict()))
        return ["--share", arm, part, *(str(self._folder / f"{name}.json") for name in files)]

    def book(self, report: Comparison, *more: str) -> dict[str, Entry]:
        """Book a report; standing entries by arm."""
        file = self._folder / "report.json"
        file.write_text(json.dumps(report.as_dict()))
        code = book.main([str(self.ledger), str(file), *more])
        assert (code, self._capsys.readouterr().err) == (0, "")
        return {row.entry.arm: row.entry for row in read_ledger(self.ledger)}

    def refusal(self, report: Comparison, *more: str) -> str:
        """Why a report is not booked; the ledger stays as it was, and the reason is one line."""
        file = self._folder / "report.json"
        file.write_text(json.dumps(report.as_dict()))
        before = self.ledger.read_bytes() if self.ledger.exists() else None
        assert book.main([str(self.ledger), str(file), *more]) == 1
        assert (self.ledger.read_bytes() if self.ledger.exists() else None) == before
        error = self._capsys.readouterr().err
        assert (error.count("\n"), error[:7]) == (1, "error: ")
        return error


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path, capsys)


def make_detect(*arms: str, **changes: Any) -> Comparison:
    """A report of ``detect_b4`` with its baseline and some of its arms, each of one pair."""
    report = make_report({arm: [10.0 if arm == "eager" else 5.0] for arm in ("eager", *arms)}, **changes)
    documented = read_workload("detect_b4")
    return replace(report, workload=replace(documented, arms={arm: documented.arms[arm] for arm in ("eager", *arms)}))


def at(profile: StepProfile, **place: Any) -> StepProfile:
    """The same profile from another place."""
    return replace(profile, environment={**profile.environment, **place})


def test_a_share_by_hand() -> None:
    # 10 of 100 ms, of which 1 is left
    eager, flagged = make_profile(10.0, magic=False), make_profile(1.0, magic=True)
    assert Share.of("loss", eager, flagged) == Share("loss", 10.0, 90.0)
    assert Share.of("forward+loss", eager, flagged).percent == 100.0
    others = (make_profile(1.0, magic=False), at(flagged, commit="def"), replace(flagged, data={"batch_size": 8}))
    for other in others:
        with pytest.raises(RunError, match="the second with a flag that the first has not"):
            Share.of("loss", eager, other)


def test_a_share_of_a_part_of_the_optimizer_by_hand() -> None:
    eager, flagged = (
        replace(make_profile(0.0, magic=on), optimizer_host_ms={"updates": updates, "orthogonalization": 4.0})
        for updates, on in ((8.0, False), (2.0, True))
    )
    assert Share.of("updates", eager, flagged) == Share("updates", 8.0, 75.0)
    assert Share.of("orthogonalization+updates", eager, flagged) == Share("orthogonalization+updates", 12.0, 50.0)
    with pytest.raises(RunError, match="no part updates"):
        Share.of("updates", make_profile(0.0), flagged)


def test_no_part_counts_twice_and_none_without_a_time_has_a_share(desk: Desk) -> None:
    eager, flagged = (
        replace(profile, host_ms={**profile.host_ms, "clip": 4.0}, clip_host_ms={"gradient_norm": 1.0})
        for profile in (make_profile(10.0, **OFF), make_profile(1.0, **LOSS))
    )
    for part, twice in (("loss+loss", "loss"), ("clip+gradient_norm", "gradient_norm")):
        error = desk.refusal(make_detect("network"), *desk.share("loss", eager, flagged, part=part))
        assert f"{part} counts {twice} twice" in error
    for one, other, which in ((0.0, 10.0, "without"), (10.0, 0.0, "with")):  # the second: all of it is one recording
        pair = make_profile(one, **OFF), make_profile(other, **LOSS)
        error = desk.refusal(make_detect("network"), *desk.share("loss", *pair))
        assert f"flagged.json: loss was timed as nothing {which} the flag" in error


def test_an_arm_that_was_profiled_and_not_timed_has_a_row_of_its_own(desk: Desk) -> None:
    updates = {**OFF, "capture.updates": True}
    for arm, left, flags in (("loss", 1.0, LOSS), ("updates", 5.0, updates)):
        pair = (at(make_profile(ms, part=arm, **on), commit="def") for ms, on in ((10.0, OFF), (left, flags)))
        rows = desk.book(make_detect("network"), *desk.share(arm, *pair, part=arm))
    assert set(rows) == {"network", "loss", "updates"}
    assert (rows["loss"].pairs, rows["loss"].commit, rows["loss"].batch) == ((), "def", 4)
    assert rows["network"].commit == "abc"
    assert judge(rows["loss"], version="0.1.0") == Judgement(State.KEEP, "loss is lean in eager")
    assert judge(rows["updates"], version="0.1.0") == Judgement(State.UNMEASURED, "profiled, not timed")
    cells = {
        row[1]: dict(zip(HEADER, row, strict=True))
        for row in ledger_rows(read_ledger(desk.ledger), [read_workload("detect_b4")], version="0.1.0")
    }
    assert cells["`capture=loss`"]["pairs"] == "profile only"
    assert cells["`capture=loss`"]["saved"] == cells["`capture=loss`"]["reserved, MiB"] == ""
    assert cells["`capture=loss`"]["eager share"] == "loss: 10.0 %, of it 90 % removed"


def test_red_has_the_version_of_its_first_time_without_a_timing_too(desk: Desk) -> None:
    share = desk.share("loss", make_profile(10.0, **OFF), make_profile(1.0, **LOSS))
    rows = desk.book(make_detect("network"), "--parity", "red", *share)
    assert rows["loss"].parity == rows["network"].parity
    assert (rows["loss"].parity.state, rows["loss"].parity.red_since) == (ParityState.RED, "0.1.0")


@pytest.mark.parametrize("timed", ["network", "loss"])
@pytest.mark.parametrize(
    ("eager", "flagged", "why"),
    [
        (OFF, {**OFF, "capture.updates": True}, "flagged.json has capture.loss false, arm loss of detect_b4"),
        (OFF, {**LOSS, "kernels": "fused"}, "eager.json has kernels None, "),
        ({**OFF, "kernels": "stock"}, {**LOSS, "kernels": "fused"}, "kernels stock, "),
        (OFF, {**LOSS, "capture.updates": True}, "eager.json has capture.updates false, "),
        (LOSS, {**LOSS, "capture.updates": True}, "eager.json has capture.loss true already"),
        (LOSS, OFF, "name the profile without them first"),
        *(({**OFF, "precision": "32-true"}, {**LOSS, "precision": "32-true"}, f"{file}.json has precision 32-true, ")
          for file in ("eager", "flagged")),
    ],
)  # fmt: skip
def test_profiles_of_other_flags_are_refused(
    desk: Desk, timed: str, eager: dict[str, Any], flagged: dict[str, Any], why: str
) -> None:
    share = desk.share("loss", make_profile(10.0, **eager), make_profile(1.0, **flagged))
    error = desk.refusal(make_detect(timed), *share)
    assert why in error
    assert "arm loss of detect_b4 (capture=loss)" in error


@pytest.mark.parametrize("timed", ["network", "loss"])
@pytest.mark.parametrize(
    ("data", "place", "why"),
    [
        ({"batch_size": 16}, {}, "data.batch_size 16"),
        ({"image_size": 320}, {}, "size 320 instead of 640"),
        ({}, {"device": "another card"}, "device another card instead of a card"),
        ({}, {"driver": "1.3"}, "driver 1.3 instead of 1.2"),
        ({}, {"versions": {**PLACE["versions"], "torch": "9.8"}}, "torch 9.8 instead of 9.9"),  # type: ignore[dict-item]
        ({}, {"cores": 2}, "cores 2 instead of 8"),
        ({}, {"commit": None}, "flagged.json names no commit"),
    ],
)
def test_profiles_of_other_data_or_another_place_are_refused(
    desk: Desk, timed: str, data: dict[str, int], place: dict[str, Any], why: str
) -> None:
    eager, flagged = (
        replace(at(profile, **place), data={**profile.data, **data})
        for profile in (make_profile(10.0, **OFF), make_profile(1.0, **LOSS))
    )
    error = desk.refusal(make_detect(timed), *desk.share("loss", eager, flagged))
    assert why in error
    assert "flagged.json" in error


def test_a_size_that_report_and_profiles_share_has_to_be_that_of_the_workload(desk: Desk) -> None:
    data = {"train_images": 100, "batch_size": 16, "image_size": 640}
    pair = (replace(make_profile(ms, **flags), data=data) for ms, flags in ((10.0, OFF), (1.0, LOSS)))
    error = desk.refusal(make_detect("network", data=data), *desk.share("loss", *pair))
    assert "flagged.json has data.batch_size 16, arm loss of detect_b4 (capture=loss) 4" in error


def test_a_timed_arm_takes_no_share_of_another_commit(desk: Desk) -> None:
    eager, flagged = make_profile(10.0, **OFF), make_profile(1.0, **LOSS)
    elsewhere = (at(profile, commit="def") for profile in (eager, flagged))
    error = desk.refusal(make_detect("loss"), *desk.share("loss", *elsewhere))
    assert "commit def instead of abc, which the report of detect_b4 has" in error
    rows = desk.book(make_detect("loss"), *desk.share("loss", eager, flagged))
    assert (rows["loss"].pairs, rows["loss"].share) == ((0.5,), Share("loss", 10.0, 90.0))


def test_both_profiles_may_have_a_flag_that_the_arm_has_not(desk: Desk) -> None:
    clipped = {"capture.network": True, "capture.gradient_norm": True}
    eager = make_profile(10.0, part="clip", **{**OFF, "capture.network": True})
    flagged = make_profile(1.0, part="clip", **{**OFF, **clipped})
    rows = desk.book(make_detect("network"), *desk.share("gradient_norm", eager, flagged, part="clip"))
    assert rows["gradient_norm"].share == Share("clip", 10.0, 90.0)


def test_a_row_for_every_flag_that_an_arm_switches(desk: Desk) -> None:
    eager = {**OFF, "kernels": "stock"}
    whole = {**OFF, "capture.step": True, "kernels": "fused"}  # the number of streams has no row
    share = desk.share("fused", make_profile(10.0, **eager), make_profile(1.0, **whole))
    rows = desk.book(make_detect("network"), *share)
    assert rows["fused"].option == "capture=step capture.step.streams=12 kernels=fused"
    assert rows["fused"].share == Share("loss", 10.0, 90.0)
    share = desk.share("fused", make_profile(10.0, **eager), make_profile(1.0, **{**whole, "kernels": "stock"}))
    error = desk.refusal(make_detect("network"), *share)
    assert "flagged.json has kernels stock, arm fused of detect_b4" in error


def test_what_another_baseline_has_is_on_both_sides(desk: Desk) -> None:
    workload = read_workload("segment_b4_heads")  # capture=heads, capture=network+heads
    report = make_report({"heads": [10.0], "network+heads": [5.0]}, name="segment_b4_heads")
    report = replace(report, workload=workload)
    heads = {**OFF, "capture.heads": True}
    eager, flagged = (
        make_profile(ms, part="backward", **flags)
        for ms, flags in ((10.0, heads), (1.0, {**heads, "capture.network": True}))
    )
    share = desk.share("network+heads", eager, flagged, part="backward")
    assert desk.book(report, *share)["network+heads"].share is not None
    plain = make_profile(10.0, part="backward", **{**OFF, "capture.heads": False})
    error = desk.refusal(report, *desk.share("network+heads", plain, flagged, part="backward"))
    assert "eager.json has capture.heads false, baseline heads true" in error


STORED = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize(
    ("arm", "part", "others", "allowed"),
    [
        ("loss", "updates", "updates", "loss"),
        ("loss", "loss+clip", "clip", "loss"),
        ("network", "loss", "loss", "backward, forward"),
        ("gradient_norm", "optimizer", "optimizer", "clip"),
        ("updates", "orthogonalization+ema", "orthogonalization, ema", "updates"),
        ("all", "ema", "ema", "backward, clip, forward, loss, orthogonalization, updates"),
    ],
)
def test_a_part_that_the_arm_does_not_record_is_refused(
    desk: Desk, arm: str, part: str, others: str, allowed: str
) -> None:
    eager = read_profile(STORED / "records" / "profiles" / "detect_b4_eager.json")  # a real one, with all of its parts
    flagged = replace(eager, flags={**eager.flags, "magic": True})
    error = desk.refusal(make_detect(arm), *desk.share(arm, eager, flagged, part=part))
    assert f"does not record {others}. Of the parts of " in error
    assert f"eager.json it records {allowed}: name one" in error


def test_shares_that_are_booked_stay_bookable() -> None:
    rows = [row for row in read_ledger(STORED / "ledger.json") if row.entry.share is not None]
    assert rows
    for row in rows:
        assert row.entry.share is not None
        (region,) = row.entry.option.removeprefix("capture=").split("+")
        assert row.entry.share.part in RECORDED[region]


def test_the_parts_of_each_region_are_known() -> None:
    assert set(RECORDED) == set(REGIONS)


def test_a_share_belongs_to_one_arm_that_is_no_baseline(desk: Desk) -> None:
    share = desk.share("eager", make_profile(10.0, **OFF), make_profile(1.0, **LOSS))
    assert "eager is the baseline of detect_b4; a share belongs to one of its other arms" in desk.refusal(
        make_detect("loss"), *share
    )
    share = desk.share("magik", make_profile(10.0, **OFF), make_profile(1.0, **LOSS))
    assert "No arm magik is booked" in desk.refusal(make_detect("loss"), *share)
    share = desk.share("loss", make_profile(10.0, **OFF), make_profile(1.0, **LOSS))
    assert "Arm loss has two shares" in desk.refusal(make_detect("loss"), *share, *share)


def test_profiles_alone_take_no_timed_entry_s_place(desk: Desk) -> None:
    timed = desk.book(make_detect("loss"), "--parity", "green")["loss"]
    eager, flagged = make_profile(10.0, **OFF), make_profile(1.0, **LOSS)
    error = desk.refusal(
        replace(make_detect("network"), date="2026-01-03"),
        *desk.share("loss", *(at(profile, commit="def") for profile in (eager, flagged))),
    )
    assert "detect_b4 loss was timed on a card already, and its profiles have commit def instead of abc" in error
    rows = desk.book(replace(make_detect("network"), date="2026-01-03"), *desk.share("loss", eager, flagged))
    assert rows["loss"] == replace(timed, share=Share("loss", 10.0, 90.0))
    assert [row.history for row in read_ledger(desk.ledger)] == [(), ()]


def test_a_timing_takes_the_place_of_profiles_and_keeps_their_share(desk: Desk) -> None:
    desk.book(make_detect("network"), *desk.share("loss", make_profile(10.0, **OFF), make_profile(1.0, **LOSS)))
    rows = desk.book(make_detect("loss"))
    assert (rows["loss"].pairs, rows["loss"].share) == ((0.5,), Share("loss", 10.0, 90.0))


@pytest.mark.parametrize(
    ("keys", "value", "why"),
    [
        ((), [], "it holds [], and must hold a mapping"),
        ((), None, "it holds None"),
        (("environment",), None, "environment is None, and must be a mapping"),
        (("environment",), {"device": "a card"}, "environment has no commit"),
        (("environment", "device"), None, "environment.device is None, and must be a text"),
        (("environment", "versions"), {}, "environment.versions has no torch"),
        (("flags",), "loss", "flags is 'loss', and must be a mapping"),
        (("flags", "capture.loss"), [], "flags.capture.loss is []"),
        (("host_ms",), None, "host_ms is None, and must be a mapping"),
        (("host_ms",), "fast", "host_ms is 'fast'"),
        (("host_ms",), {}, "host_ms has no time in any part"),
        (("host_ms", "loss"), 0.0, "loss was timed as nothing"),
        (("host_ms", "loss"), float("nan"), "host_ms.loss is nan, and must be a number from 0"),
        (("host_ms", "loss"), -1.0, "host_ms.loss is -1.0"),
        (("host_ms", "loss"), "1", "host_ms.loss is '1'"),
        (("data",), [4], "data is [4]"),
        (("data", "batch_size"), True, "data.batch_size is True, and must be a whole number"),
        (("step_ms",), 0.0, "step_ms is 0.0"),
        (("clip_host_ms",), None, "clip_host_ms is None"),
        (("speed",), 1.0, "it knows no speed"),
    ],
)
@pytest.mark.parametrize("damaged", ["eager", "flagged"])
def test_a_damaged_profile_is_named_and_nothing_is_booked(
    desk: Desk, tmp_path: Path, damaged: str, keys: tuple[str, ...], value: Any, why: str
) -> None:
    desk.book(make_detect("network"))
    share = desk.share("loss", make_profile(10.0, **OFF), make_profile(1.0, **LOSS))
    file = tmp_path / f"{damaged}.json"
    path = ("whole", *keys)
    values = {"whole": json.loads(file.read_text())}
    reduce(getitem, path[:-1], values)[path[-1]] = value
    file.write_text(json.dumps(values["whole"]))
    error = desk.refusal(make_detect("network"), *share)
    assert why in error
    assert f"{damaged}.json" in error


def test_a_file_that_is_cut_or_gone_is_no_profile(desk: Desk, tmp_path: Path) -> None:
    share = desk.share("loss", make_profile(10.0, **OFF), make_profile(1.0, **LOSS))
    (tmp_path / "flagged.json").write_text('{"steps": 1,')
    assert "flagged.json is no profile of a step: JSONDecodeError" in desk.refusal(make_detect("loss"), *share)
    (tmp_path / "flagged.json").unlink()
    assert "flagged.json is no profile of a step: FileNotFoundError" in desk.refusal(make_detect("loss"), *share)
