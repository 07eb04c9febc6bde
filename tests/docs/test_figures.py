"""Figures of the pages: made from the records, up to date, and a planted change is seen."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lucid_yolo.bench.figures import TABLES, comparison_table, fits_table, overfit_table, read_tables
from lucid_yolo.engine.figures import PAGES, ledger_table, main
from tests.checkout import ROOT


def copy_pages(target: Path) -> Path:
    shutil.copytree(ROOT / "docs", target / "docs")
    shutil.copy(ROOT / "README.md", target)
    return target


def test_figures_are_up_to_date() -> None:
    assert main([str(ROOT), "--check"]) == 0


@pytest.mark.parametrize("page", PAGES)
def test_a_changed_figure_is_seen_and_mended(page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkout = copy_pages(tmp_path)
    path = checkout / page
    text = path.read_text()
    path.write_text(text.replace("| seed 0 | 0.", "| seed 0 | 0.9", 1).replace("| undecided: ", "| keep: ", 1))
    assert path.read_text() != text
    assert main([str(checkout), "--check"]) == 1
    assert page in capsys.readouterr().err
    assert main([str(checkout)]) == 0
    assert path.read_text() == text


def test_a_row_of_the_ledger_has_the_note_of_its_measurement() -> None:
    lines = ledger_table(ROOT / "docs" / "ledger.json").splitlines()
    for entry in json.loads((ROOT / "docs" / "ledger.json").read_text())["entries"]:
        rows = [line for line in lines if f"| `{entry['option']}` | {entry['workload']}: " in line]
        notes = [line for line in lines if line.startswith(f"{rows[0].split(' | ')[-1].removesuffix(' |')}. ")]
        assert (len(rows), len(notes)) == (1, 1)
        assert f"commit {entry['commit']}, " in notes[0]
        assert notes[0].endswith(f"parity green {entry['parity']['test']}")
    assert not any(line.startswith("- `detect_b4`: ") and "network" in line for line in lines)  # it is measured


def test_every_record_names_its_machine_and_command() -> None:
    records = sorted((ROOT / "docs" / "records").glob("*.json"))
    assert len(records) >= 4
    for path in records:
        record = json.loads(path.read_text())
        assert {"device", "versions", "commit"} <= set(record.get("environment", record)), path.name
        command = record.get("command", "")
        assert "workload" in record or command.startswith("python -m lucid_yolo.bench."), path.name


def test_a_record_without_a_table_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "guess.json").write_text("{}")
    with pytest.raises(ValueError, match=r"guess\.json.*shapes"):
        read_tables(tmp_path)
    assert {path.stem for path in (ROOT / "docs" / "records").glob("*.json")} >= set(TABLES)


def test_comparison_table_by_hand() -> None:
    medians = {"complete_fit": 9.96, "fit": 5.04, "first_step": 1.24, "step": 20.06, "images": 99.6, "reserved": 10.4}
    record = {
        "workload": {"name": "mine", "arms": {"eager": [], "other": []}, "blocks": 3},
        "environment": {"device": "a card", "driver": None, "versions": {"torch": "9.9"}, "commit": "abc"},
        "arms": [{"name": "eager", "runs": 3, "medians": medians}],
    }
    table = comparison_table("mine", record)
    assert table.rows == (("eager", "3", "10.0 s", "5.0 s", "1.2 s", "20.1 ms", "100", "10 MiB"),)
    assert table.source == (
        "a card, torch 9.9, commit abc. Again with: `lucid-yolo compare workload=mine arms=eager,other blocks=3`."
    )


SOURCE = {"device": "a card", "driver": "1.2", "versions": {"torch": "9.9"}, "commit": "abc", "command": "again"}


def test_fits_table_by_hand() -> None:
    plan = {"precision": {"active": "32-true"}, "deterministic": {"active": "strict"}}
    names = ("box_ap", "box_ap50", "box_ap_nms", "box_ap50_nms")
    timing = {"fit_seconds": 9.6, "step_ms_median": 4.4}
    runs = [
        {"seed": seed, "metrics": dict.fromkeys(names, value), "timing": timing, "plan": plan}
        for seed, value in ((0, 0.25), (1, 0.75))
    ]
    record = {
        "runs": runs,
        "metrics": {name: {"mean": 0.5} for name in names},
        "parallel": 1,
        **SOURCE,
    }
    table = fits_table("bccd", record)
    assert table.rows[0] == (
        "seed 0",
        "0.250",
        "0.250",
        "0.250",
        "0.250",
        "10 s",
        "4 ms",
        "32-true, deterministic strict",
    )
    assert table.rows[2][:3] == ("**mean**", "**0.500**", "**0.500**")
    assert table.source == "a card, driver 1.2, torch 9.9, commit abc. Again with: `again`."


def test_fits_table_shows_what_the_task_is_scored_by() -> None:
    plan = {"precision": {"active": "32-true"}, "deterministic": {"active": "strict"}}
    names = ("oks_ap", "oks_ap50", "box_ap", "box_ap50", "oks_ap_nms", "oks_ap50_nms", "box_ap_nms", "box_ap50_nms")
    metrics = {"primary": 0.0, **{name: i / 8 for i, name in enumerate(names)}}
    run = {"seed": 3, "metrics": metrics, "timing": {"fit_seconds": 1.0, "step_ms_median": None}, "plan": plan}
    table = fits_table("points", {"runs": [run], "metrics": metrics, "parallel": 1, **SOURCE})
    assert table.header[1:5] == ("oks AP50-95", "oks AP50", "oks AP50-95 (NMS)", "oks AP50 (NMS)")
    assert table.rows[0][:5] == ("seed 3", "0.000", "0.125", "0.500", "0.625")


def test_overfit_table_shows_boxes_and_masks() -> None:
    details = {"ap": 0.25, "ap50": 0.5, "recall_50": {"found": 3, "objects": 4}}
    masks = {"mask_recall_50": {"found": 1, "objects": 2}}
    for found, cells in ((details, ("3 of 4",)), ({**details, **masks}, ("3 of 4", "1 of 2"))):
        run = {"validate": {"details": {"one_to_one": found}}}
        table = overfit_table("any", {"runs": [run], "metrics": {"primary": 0.0, "mask_ap": 0.0}, **SOURCE})
        assert table.rows == (("one_to_one", *cells, "**0.250**", "**0.500**"),)
        assert len(table.header) == 1 + len(cells) + 2
        assert table.header[-2:] == ("mask AP50-95", "mask AP50")
