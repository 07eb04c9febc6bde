"""Records of complete fits: the arithmetic over seeds, and one real run in a child process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lucid_yolo.bench.fits import condense, main
from lucid_yolo.config.errors import RunError
from tests.engine.tiny import tiny_overrides


def make_summary(seed: int, box_ap: float) -> dict[str, object]:
    empty: dict[str, object] = {}
    return {
        "status": "finished", "seed": seed, "metrics": {"box_ap": box_ap, "mask_ap": None}, "timing": empty,
        "memory": empty, "plan": empty, "best_epoch": 3,
        "device": "cpu", "driver": None, "versions": empty, "commit": "abc",
    }  # fmt: skip


def test_mean_and_spread_by_hand() -> None:
    summaries = [make_summary(0, 0.5), make_summary(1, 0.7), make_summary(2, 0.9)]
    record = condense(summaries, command="again", overrides=["model=n"])
    assert record["metrics"] == {"box_ap": {"mean": pytest.approx(0.7), "min": 0.5, "max": 0.9}}
    assert [run["seed"] for run in record["runs"]] == [0, 1, 2]
    assert (record["commit"], record["overrides"]) == ("abc", ["model=n"])


@pytest.mark.slow
def test_a_fit_and_its_validation_become_a_record(tmp_path: Path) -> None:
    out = tmp_path / "record.json"
    tiny = tiny_overrides(
        "data.recipe.epochs=1", "data.recipe.val_every=1", "data.options.num_train=4", "data.options.num_val=2"
    )
    main(
        [
            "--seeds",
            "3",
            "--out",
            str(out),
            "--validate",
            "split=train",
            "accelerator=cpu",
            "--runs",
            str(tmp_path),
            *tiny,
        ]
    )
    record = json.loads(out.read_text())
    (run,) = record["runs"]
    assert (run["seed"], run["status"], run["validate"]["split"]) == (3, "finished", "train")
    assert not any(str(tmp_path) in run["validate"][key] for key in ("checkpoint", "source"))
    assert run["validate"]["details"]["one_to_one"]["recall_50"]["objects"] > 0
    assert record["metrics"]["box_ap"]["mean"] == run["metrics"]["box_ap"]


def test_a_refused_fit_names_the_reason(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="image_size"):
        main(["--out", str(tmp_path / "record.json"), "--runs", str(tmp_path), "data.image_size=33"])
    assert not (tmp_path / "record.json").exists()
