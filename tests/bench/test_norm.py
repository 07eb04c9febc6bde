"""Times of normalisation: which maps a network has, and a tiny run in Triton's interpreter."""

from __future__ import annotations

import json
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from lucid_yolo.bench.norm import Map, find_maps, make_pass, table_of, total
from lucid_yolo.config.compose import compose, to_root
from lucid_yolo.data.labels.base import spec_without_data
from lucid_yolo.nn.blocks import BatchNorm2d
from lucid_yolo.nn.norms import STOCK
from lucid_yolo.tasks import get_task
from tests.checkout import run_python


def test_every_map_of_nano_is_counted() -> None:
    config = to_root(compose())
    maps = find_maps(config, 640)
    assert maps.most_common(1)[0][1] > 1
    assert Map(320, 320, 16, activated=True) in maps  # the stem: half of 640 px, a quarter of 64 channels
    assert {kind.channels for kind in maps if kind.height == 20 and not kind.activated} >= {128}  # of the attention
    hooked: Counter[tuple[int, ...]] = Counter()
    task = get_task(config.task.name)
    model = task.build_model(config.model, spec_without_data(task.labels, 80)).train()
    for module in model.modules():
        if isinstance(module, BatchNorm2d):
            module.register_forward_hook(lambda _, inputs, __: hooked.update([tuple(inputs[0].shape[1:])]))
    model(torch.rand(1, 3, 64, 64))
    small = find_maps(config, 64)
    assert {(kind.channels, kind.height, kind.width) for kind in small} == hooked.keys()
    assert sum(small.values()) == sum(hooked.values()) == sum(maps.values())


def test_a_pass_gives_the_result_and_all_gradients() -> None:
    kind = Map(3, 5, 4, activated=True)
    found = make_pass(STOCK, kind, batch=2, dtype=torch.float32, device=torch.device("cpu"))()
    assert [tuple(tensor.shape) for tensor in found] == [(2, 4, 3, 5), (2, 4, 3, 5), (4,), (4,)]


def test_the_total_counts_each_map_as_often_as_it_comes_up() -> None:
    row = {"height": 2, "width": 2, "channels": 3, "activated": True, "gb_per_second": 1.0}
    rows = [
        {**row, "count": 3, "stock_us": 100.0, "fused_us": 50.0},
        {**row, "count": 1, "stock_us": 7.0, "fused_us": 1.0},
    ]
    assert total(rows, "stock_us") == pytest.approx(0.307)
    assert "all of a step: 0.307 ms, fused 0.151 ms" in str(table_of(rows, "title").caption)


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed here")
def test_a_tiny_network_in_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    out = tmp_path / "norm.json"
    settings = ["--device", "cpu", "--batch", "1", "--size", "64", "--dtype", "fp32", "--repeats", "1"]
    done = run_python(
        "-m", "lucid_yolo.bench.norm", *settings, "--out", out, "model.variant=tiny", "model.width=0.0625"
    )
    assert done.returncode == 0, done.stderr
    assert "batch 1, 64 px, fp32" in done.stdout
    record = json.loads(out.read_text())
    assert record["command"].startswith("python -m lucid_yolo.bench.norm --device cpu")
    (batch,) = record["batches"]
    assert all(row["stock_us"] > 0 and row["fused_us"] > 0 for row in batch["rows"])
    config = to_root(compose(["model.variant=tiny", "model.width=0.0625"]))
    assert sum(row["count"] for row in batch["rows"]) == sum(find_maps(config, 64).values())
