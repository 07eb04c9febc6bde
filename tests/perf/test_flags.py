"""Flags are found by walking their package, and each decides by itself what is active."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace

import pytest

from lucid_yolo.config.schema import PrecisionName
from lucid_yolo.perf.flag import find_flags
from lucid_yolo.perf.plan import resolve
from tests.perf.machines import CPU, CUDA, MPS, OLD_CUDA, make_config


def test_flags_of_the_package():
    assert [flag.key for flag in find_flags()] == [
        "cache",
        "capture.network",
        "capture.heads",
        "capture.loss",
        "capture.gradient_norm",
        "capture.orthogonalization",
        "capture.updates",
        "capture.auto",
        "capture.step",
        "channels_last",
        "compile",
        "deterministic",
        "accelerator",
        "devices",
        "hsv",
        "hsv.fused",
        "kernels",
        "precision",
        "prefetch",
    ]


def test_a_new_module_is_found_by_itself_and_one_without_flags_is_an_error(tmp_path, monkeypatch):
    package = tmp_path / "planted_flags"
    (package / "capture").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "capture" / "__init__.py").write_text("FLAGS = ()\n")
    (package / "capture" / "network.py").write_text("FLAGS = ('found',)\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_flags(importlib.import_module("planted_flags")) == ("found",)
    (package / "orphan.py").touch()
    importlib.invalidate_caches()
    with pytest.raises(AttributeError, match="FLAGS"):
        find_flags(sys.modules["planted_flags"])


@pytest.mark.parametrize(
    ("requested", "machine", "active"),
    [
        (PrecisionName.AUTO, CUDA, "bf16-mixed"),
        (PrecisionName.AUTO, OLD_CUDA, "32-true"),
        (PrecisionName.AUTO, replace(CUDA, torch_version="2.9.0rc3"), "32-true"),
        (PrecisionName.AUTO, CPU, "32-true"),
        (PrecisionName.AUTO, MPS, "32-true"),
        (PrecisionName.BF16, CUDA, "bf16-mixed"),
        (PrecisionName.FP16, OLD_CUDA, "16-mixed"),
        (PrecisionName.FP32, CUDA, "32-true"),
    ],
)
def test_precision_without_a_broken_rule(requested, machine, active):
    row = resolve(make_config(precision=requested), machine, None)["precision"]
    assert (row.active, row.rule_id) == (active, None)
    assert bool(row.reason) == (requested is PrecisionName.AUTO)


@pytest.mark.parametrize(
    ("requested", "machine"),
    [(PrecisionName.BF16, CPU), (PrecisionName.BF16, MPS), (PrecisionName.FP16, CPU), (PrecisionName.BF16, OLD_CUDA)],
)
def test_precision_falls_back_to_the_one_that_runs_everywhere(requested, machine):
    row = resolve(make_config(precision=requested), machine, None)["precision"]
    assert (row.requested, row.active) == (str(requested), "32-true")
    assert row.rule_id is not None


@pytest.mark.parametrize(("machine", "active"), [(CUDA, True), (CPU, True), (MPS, False)])
def test_channels_last_follows_the_device(machine, active):
    assert resolve(make_config(), machine, None)["channels_last"].active is active


@pytest.mark.parametrize(
    ("machine", "deterministic", "active"),
    [
        (CPU, True, "strict"),
        (CUDA, True, "strict"),
        (MPS, True, "warn-only"),
        (MPS, False, "off"),
        (CUDA, False, "off"),
    ],
)
def test_determinism(machine, deterministic, active):
    row = resolve(make_config(deterministic=deterministic), machine, None)["deterministic"]
    assert (row.requested, row.active) == (deterministic, active)


def test_accelerator_names_what_auto_took():
    row = resolve(make_config(), MPS, None)["accelerator"]
    assert (row.requested, row.active, row.reason) == ("auto", "mps", "auto: no CUDA device, MPS is present")
