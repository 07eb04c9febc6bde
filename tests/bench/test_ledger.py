"""The ledger: booking, history, pooling, the rule, and the table."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from lucid_yolo.bench import book
from lucid_yolo.bench.book import book_reports, entries_of, pooled
from lucid_yolo.bench.comparison import Comparison
from lucid_yolo.bench.ledger import (
    Entry,
    Judgement,
    Parity,
    Share,
    State,
    booked,
    judge,
    read_ledger,
)
from lucid_yolo.bench.ledger_table import HEADER, ledger_rows
from lucid_yolo.config.errors import RunError
from lucid_yolo.config.workloads import Mark, ParityState
from tests.bench.runs import PLACE, make_profile, make_report, make_workload

GREEN = Parity(ParityState.GREEN, "test_parity at abc")


def make_entry(ratio: float = 0.9, *, parity: Parity = GREEN, mark: Mark | None = Mark.GAIN) -> Entry:
    (entry,) = entries_of(make_report({"eager": [10.0] * 3, "magic": [10.0 * ratio] * 3}, mark=mark), parity=parity)
    return entry


def test_an_entry_names_what_was_measured(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.json"
    report = make_report({"eager": [10.0, 10.0], "magic": [9.0, 8.0]}, setup_seconds=3.0)
    book_reports(ledger, [report], parity=GREEN)
    (row,) = read_ledger(ledger)
    entry = row.entry
    assert (entry.option, entry.workload, entry.arm) == ("magic=magic", "made_up", "magic")
    assert entry.pairs == (0.9, 0.8)
    assert entry.also["step"] == pytest.approx([0.9, 0.8])
    assert (entry.batch, entry.size, entry.precision, entry.deterministic) == (4, 640, "bf16-mixed", "strict")
    assert (entry.device, entry.driver, entry.commit, entry.date) == ("a card", "1.2", "abc", "2026-01-02")
    assert (entry.setup_seconds, entry.baseline["reserved"], entry.medians["reserved"]) == (3.0, 30.0, 28.5)
    # an image takes 10 ms and 8.5 ms: an epoch of 100 images saves 0.15 s, and 3 s come back after 20 epochs
    assert entry.break_even == pytest.approx(20.0)
    stored = json.loads(ledger.read_text())["entries"][0]
    assert stored["ratio"]["median"] == pytest.approx(0.85)
    assert stored["parity"] == {"state": "green", "test": "test_parity at abc", "red_since": None}


def test_a_new_entry_makes_the_old_one_history() -> None:
    first, second = make_entry(0.9), make_entry(0.8, parity=Parity())
    other = replace(first, device="another card")
    rows = booked(booked((), [first, other]), [second])
    found = {row.entry.device: row for row in rows}
    assert found["a card"].entry.pairs == second.pairs
    assert found["a card"].entry.parity == GREEN  # not said again, so it stands
    assert found["a card"].history == (first,)
    assert found["another card"].history == ()
    third = make_entry(0.7)
    assert booked(rows, [third])[0].history == (found["a card"].entry, first)


def test_red_keeps_the_version_of_its_first_time() -> None:
    red = make_entry(parity=Parity(ParityState.RED))
    assert red.parity.red_since == "0.1.0"
    later = replace(red, parity=Parity(ParityState.RED, red_since="0.2.0"))
    (row,) = booked(booked((), [red]), [later])
    assert row.entry.parity.red_since == "0.1.0"
    (row,) = booked((row,), [make_entry()])
    assert row.entry.parity.red_since is None


@pytest.mark.parametrize("versions", [{"lucid-yolo-lab": "not installed"}, {}], ids=["not installed", "not told"])
def test_red_of_a_checkout_counts_from_the_version_that_books(
    versions: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    place = {**PLACE, "versions": {"torch": "9.9", **versions}}
    report = make_report({"eager": [10.0] * 3, "magic": [5.0] * 3}, environment=place)
    ledger, red = tmp_path / "ledger.json", Parity(ParityState.RED, "x")
    (entry,) = book_reports(ledger, [report], parity=red)
    assert entry.parity.red_since == project["version"]
    assert judge(entry, version=project["version"]).state is State.KEEP  # within the release that found it
    assert judge(entry, version="9.9").reason == f"parity red since {project['version']}"
    monkeypatch.setattr(book, "__version__", "0+unknown")  # what a checkout has that is not installed
    before = ledger.read_bytes()
    with pytest.raises(RunError, match=r"cannot be booked as red: .* Install the project"):
        book_reports(ledger, [report], parity=red)
    assert ledger.read_bytes() == before
    assert book_reports(ledger, [report], parity=GREEN)


def test_parts_of_a_workload_are_pooled_where_nothing_else_differs() -> None:
    network = make_report({"eager": [10.0, 20.0], "network": [9.0, 16.0]})
    more = make_report({"eager": [30.0], "network": [15.0]})
    loss = make_report({"eager": [40.0], "loss": [40.0]})
    elsewhere = make_report({"eager": [1.0], "loss": [2.0]}, environment={**PLACE, "commit": "def"})
    together, alone = pooled([network, more, loss, elsewhere, network])  # the last one is the first file again
    arms = {arm.name: [*arm.ratios.values()] for arm in together.arms}
    assert arms["network"][0].ratios == pytest.approx((0.9, 0.8, 0.5))
    assert arms["loss"][0].ratios == (1.0,)
    assert alone.runs == elsewhere.runs


def test_what_cannot_be_compared_is_not_booked(tmp_path: Path) -> None:
    report = make_report({"eager": [10.0], "magic": [9.0]})
    base, arm = report.runs
    mixed = Comparison.of(report.workload, [base, replace(arm, environment={**PLACE, "commit": "def"})])
    with pytest.raises(RunError, match="differ in commit"):
        book_reports(tmp_path / "ledger.json", [report, mixed], parity=GREEN)
    failed = Comparison.of(report.workload, [base, replace(arm, error="no")])
    with pytest.raises(RunError, match="no arm has a pair"):
        book_reports(tmp_path / "ledger.json", [failed], parity=GREEN)
    assert not (tmp_path / "ledger.json").exists()


def test_the_rule() -> None:
    def state(entry: Entry | None, version: str = "0.1.0") -> Judgement:
        return judge(entry, version=version)

    assert state(None) == Judgement(State.UNMEASURED)
    assert state(make_entry(0.9)) == Judgement(State.KEEP)
    assert state(make_entry(0.97)).state is State.KEEP  # 3 % is enough
    assert state(make_entry(0.98)) == Judgement(State.CANDIDATE, "saves 2.0 %, less than 3 %")
    assert state(make_entry(1.05)) == Judgement(State.CANDIDATE, "saves -5.0 %, less than 3 %")
    red = make_entry(0.5, parity=Parity(ParityState.RED))
    assert state(red).state is State.KEEP  # within the release that found it
    assert state(red, "0.2.0") == Judgement(State.CANDIDATE, "parity red since 0.1.0")
    lean = replace(make_entry(0.99), share=Share("loss", 5.0, 90.0))
    assert state(lean) == Judgement(State.KEEP, "loss is lean in eager")
    assert state(replace(lean, parity=red.parity), "0.2.0").state is State.CANDIDATE
    kept = replace(lean, share=Share("loss", 5.0, 79.0))  # what is lean has to be removed
    reason = "saves 1.0 %, less than 3 %, and removes 79 % of loss, less than 80 %"
    assert state(kept) == Judgement(State.CANDIDATE, reason)
    assert state(replace(make_entry(0.9), share=kept.share)) == Judgement(State.KEEP)
    assert state(make_entry(1.0, mark=Mark.NOT_SLOWER)) == Judgement(State.KEEP)
    assert state(make_entry(1.02, mark=Mark.NOT_SLOWER)) == Judgement(State.KEEP, "2.0 % slower here")
    for mark, ratio in ((Mark.GAIN, 0.5), (Mark.GAIN, 4.0), (Mark.NOT_SLOWER, 1.1)):
        few = replace(make_entry(ratio, mark=mark), pairs=(ratio, ratio))
        assert state(few) == Judgement(State.UNDECIDED, "fewer than three pairs decide nothing")
    assert state(replace(lean, pairs=(0.99,))) == Judgement(State.KEEP, "loss is lean in eager")  # its share decides


def test_the_table_lists_what_was_not_measured_too() -> None:
    rows = booked((), [replace(make_entry(0.8), share=Share("loss", 5.04, 91.0))])
    measured, blank = ledger_rows(rows, [make_workload("eager", "magic", "other")], version="0.1.0")
    named = dict(zip(HEADER, measured, strict=True))
    assert named["saved"] == "**20.0 %**, faster"
    assert named["saved of a step"] == "20.0 %"
    assert named["spread of the ratio"] == "0.8000 (0.8000 to 0.8000)"
    assert named["reserved, MiB"] == "30 to 28"
    assert named["eager share"] == "loss: 5.0 %, of it 91 % removed"
    assert named["parity"] == "green test_parity at abc"
    assert named["state"] == "keep: loss is lean in eager"
    assert (measured[:2], blank[:3]) == (("detect", "`magic=magic`"), ("detect", "`magic=other`", "made_up"))
    assert (set(blank[3:-1]), blank[-1]) == ({""}, "no measurement")


def test_the_table_shows_what_was_measured_first_and_does_not_shout_what_is_undecided() -> None:
    rows = booked((), [replace(make_entry(4.0), pairs=(4.0,))])
    workloads = [replace(make_workload("eager", "other"), name="first"), make_workload("eager", "magic")]
    measured, blank = ledger_rows(rows, workloads, version="0.1.0")
    named = dict(zip(HEADER, measured, strict=True))
    assert named["saved"] == "none: 4.00 times as long, undecided"
    assert named["state"] == "undecided: fewer than three pairs decide nothing"
    assert blank[2] == "first"


def test_the_table_is_ordered_by_task_and_names_another_baseline() -> None:
    names = ("segment_b16", "obb_b4", "detect_b16", "segment_b4", "detect_b4")
    made = [replace(make_workload("eager", "magic", name=n), common=(f"task={n.partition('_')[0]}",)) for n in names]
    beside = replace(made[0], name="segment_b4_more", arms={"one": ("magic=1",), "both": ("magic=1+2",)})
    found = [cells[:3] for cells in ledger_rows((), [beside, *made], version="0.1.0")]
    assert [workload for _, _, workload in found] == [
        *("detect_b4", "detect_b16", "segment_b4", "segment_b4_more", "segment_b16", "obb_b4")
    ]
    assert found[3] == ("segment", "`magic=1+2` against `magic=1`", "segment_b4_more")


def test_a_flag_is_judged_by_each_task_alone() -> None:
    made = [replace(make_workload("eager", "magic", name=n), common=(f"task={n}",)) for n in ("detect", "obb")]
    rows = booked(
        (), [replace(make_entry(ratio), workload=one.name) for ratio, one in zip((0.8, 0.99), made, strict=True)]
    )
    assert [cells[-1] for cells in ledger_rows(rows, made, version="0.1.0")] == [
        "keep",
        "candidate for retirement: saves 1.0 %, less than 3 %",
    ]


def test_the_command_books_reports_and_shares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, ledger = tmp_path / "ab", tmp_path / "ledger.json"
    folder.mkdir()
    (folder / "report.json").write_text(json.dumps(make_report({"eager": [10.0], "magic": [9.0]}).as_dict()))
    for name, loss in (("eager", 10.0), ("flagged", 1.0)):
        profile = make_profile(loss, magic="magic" if name == "flagged" else "none")
        (tmp_path / f"{name}.json").write_text(json.dumps(profile.as_dict()))
    share = ["--share", "magic", "loss", str(tmp_path / "eager.json"), str(tmp_path / "flagged.json")]
    assert book.main([str(ledger), str(folder), "--parity", "green", "--parity-test", "by hand", *share]) == 0
    (row,) = read_ledger(ledger)
    assert (row.entry.parity, row.entry.share) == (Parity(ParityState.GREEN, "by hand"), Share("loss", 10.0, 90.0))
    assert "made_up magic: 0.9000 of 1 pairs, undecided" in capsys.readouterr().out
    assert book.main([str(ledger), str(folder), *share[:1], "magik", *share[2:]]) == 1
    assert "No arm magik is booked" in capsys.readouterr().err
    (tmp_path / "other.json").write_text(json.dumps(make_report({"eager": [9.0], "magic": [7.0]}, name="b").as_dict()))
    assert book.main([str(ledger), str(folder), str(tmp_path / "other.json"), *share]) == 1
    assert "A share belongs to one workload" in capsys.readouterr().err
    assert book.main([str(ledger), str(tmp_path / "gone.json")]) == 1
    assert "gone.json is no report of a comparison" in capsys.readouterr().err


def test_what_was_booked_is_not_booked_again() -> None:
    first, second = make_entry(0.9), replace(make_entry(0.8), date="2026-01-03")
    (row,) = booked(booked((), [first]), [replace(first, parity=Parity(ParityState.RED, "x"))])
    assert (row.entry.parity.state, row.history) == (ParityState.RED, ())
    (row,) = booked(booked((), [first, second]), [first])
    assert (row.entry, row.history) == (second, (first,))


def test_a_share_stands_until_another_commit_is_measured() -> None:
    lean = replace(make_entry(0.99), share=Share("loss", 5.0, 90.0))
    for more in (replace(lean, share=None), replace(lean, share=None, pairs=(0.98,), date="2026-01-03")):
        (row,) = booked(booked((), [lean]), [more])
        assert (row.entry.pairs, row.entry.share) == (more.pairs, lean.share)
    (row,) = booked(booked((), [lean]), [replace(lean, share=None, commit="def", date="2026-01-03")])
    assert row.entry.share is None


def test_runs_are_booked_for_another_workload_that_needs_no_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = make_report({"eager": [10.0, 20.0], "one": [8.0, 10.0], "both": [6.0, 5.0], "other": [1.0, 1.0]})
    beside = tmp_path / "beside.yaml"
    beside.write_text("mark: gain\ncommon: [data=made]\narms: {one: [magic=one], both: [magic=both]}\n")
    (tmp_path / "report.json").write_text(json.dumps(report.as_dict()))
    command = [str(tmp_path / "ledger.json"), str(tmp_path), "--as", str(beside)]
    assert book.main(command) == 0
    (row,) = read_ledger(tmp_path / "ledger.json")
    assert (row.entry.workload, row.entry.arm, row.entry.pairs) == ("beside", "both", (0.75, 0.5))  # 6 / 8 and 5 / 10
    for text in ("common: []\narms: {one: [magic=one], both: [magic=both]}", "arms: {one: [], both: [magic=both]}"):
        beside.write_text(f"{text}\n")
        assert book.main(command) == 1
        assert "made_up cannot be booked as beside" in capsys.readouterr().err


def test_an_older_measurement_does_not_replace_a_newer_one() -> None:
    entries = [replace(make_entry(0.9), date=f"2026-01-0{day}") for day in (2, 5, 3, 1)]
    (row,) = booked((), entries)
    assert [one.date[-1] for one in (row.entry, *row.history)] == ["5", "3", "2", "1"]


def test_a_damaged_ledger_is_left_alone(tmp_path: Path) -> None:
    for text in ('{"entries": [', "[]", '{"entries": [{"workload": "x"}]}'):
        file = tmp_path / "ledger.json"
        file.write_text(text)
        with pytest.raises(RunError, match="is no ledger"):
            book_reports(file, [make_report({"eager": [10.0], "magic": [9.0]})], parity=GREEN)
        assert file.read_text() == text
