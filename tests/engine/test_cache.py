"""A run with cached pictures: the same weights, an outcome in its records, refusals and bad images before the fit."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import lucid_yolo as ly
from lucid_yolo.config.errors import ConfigError, DataError
from lucid_yolo.data import cache as cache_module
from lucid_yolo.engine import resolve as resolve_module
from lucid_yolo.engine.train import train
from lucid_yolo.perf.plan import RunPlan
from tests.data.disk import coco_document, write_picture
from tests.engine.test_train import assert_equal, curve
from tests.engine.tiny import TWO_EPOCHS, learn, read_state, tiny_config, tiny_overrides

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="caches in memory are Linux's")
PICTURES = 6
MIB = PICTURES * 3 * 96 * 96 / 1024**2


@pytest.fixture(autouse=True)
def no_cache_yet(monkeypatch):
    monkeypatch.setattr(cache_module, "_in_memory", cache_module._MemoryCaches())


def tiny_run(run_dir: Path, *changes: str):
    return learn(tiny_config(run_dir, *TWO_EPOCHS, *changes))


@pytest.fixture(scope="module")
def uncached(plain_run) -> Path:
    return plain_run()


@pytest.mark.parametrize(
    ("option", "workers"), [("decoded", 0), ("prepared", 2)], ids=["decoded", "prepared, two workers"]
)
def test_a_cached_run_equals_the_uncached_one_and_says_what_it_did(uncached, tmp_path, option, workers):
    result = tiny_run(tmp_path / "run", f"cache={option}", f"data.num_workers={workers}")
    plain, cached = read_state(uncached), read_state(result.run_dir)
    for part in ("state_dict", "optimizer_states", "epoch", "global_step"):
        assert_equal(plain[part], cached[part], part)
    assert curve(result.run_dir) == curve(uncached)
    outcome = result.plan["cache"].outcome
    assert (outcome["images"], outcome["reused"], outcome["unusable"]) == (PICTURES, False, 0)
    assert outcome["mib"] == pytest.approx(MIB, abs=1e-3)
    assert outcome["setup_seconds"] > 0
    summary = json.loads((result.run_dir / "summary.json").read_text())
    assert summary["plan"]["cache"]["outcome"] == outcome
    assert RunPlan.from_json((result.run_dir / "plan.json").read_text())["cache"].outcome == outcome
    assert f"cache={option}: {PICTURES} pictures, {MIB:.1f} MiB, made in" in (result.run_dir / "train.log").read_text()
    again = tiny_run(tmp_path / "again", f"cache={option}")
    assert again.plan["cache"].outcome["reused"] is True
    assert "held by this process already" in again.plan["cache"].reason
    assert_equal(plain["state_dict"], read_state(again.run_dir)["state_dict"])


def test_an_uncached_run_has_no_outcome(uncached):
    assert json.loads((uncached / "summary.json").read_text())["plan"]["cache"]["outcome"] == {}


def test_a_cache_that_does_not_fit_is_refused_before_anything_is_decoded_or_written(tmp_path, monkeypatch):
    describe = resolve_module.describe_machine
    small = lambda root: replace(describe(root), memory_available=100_000)  # noqa: E731
    monkeypatch.setattr(resolve_module, "describe_machine", small)
    monkeypatch.setattr(cache_module.FileSource, "__call__", lambda *_: pytest.fail("decoded"))
    with pytest.raises(
        ConfigError, match=r"cache=decoded takes 0\.00 GiB for 6 training pictures.*\[cache\.fits-memory\]"
    ):
        tiny_run(tmp_path / "run", "cache=decoded")
    assert not (tmp_path / "run").exists()


def test_a_bad_image_stops_the_run_before_its_first_step(tmp_path):
    root = tmp_path / "set"
    for split in ("train", "val"):
        names = [f"{i}.png" for i in range(4)]
        for name in names:
            write_picture(root / f"{split}2017" / name)
        annotations = [{"image_id": i, "category_id": 1, "bbox": [4, 5, 20, 10], "area": 200} for i in range(1, 5)]
        (root / "annotations").mkdir(exist_ok=True)
        document = coco_document(names, annotations, {1: "cat"})
        (root / "annotations" / f"instances_{split}2017.json").write_text(json.dumps(document))
    bad = root / "train2017" / "2.png"
    bad.write_bytes(bad.read_bytes()[:-40])  # its header is whole
    changes = [line for line in tiny_overrides() if not line.startswith("data.options")]
    lines = [*changes, f"data.root='{root}'", f"run_dir='{tmp_path / 'run'}'", "cache=decoded"]
    lines[0] = "data=coco"
    with pytest.raises(DataError, match=r"2\.png: .*truncated.*data\.bad_images=skip"):
        train(ly.compose(lines))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["timing"]["first_step_seconds"]) == ("failed", None)
    assert "2.png" in summary["error"]
