"""Reading the machine: versions, accelerators, cores; the record survives JSON."""

from __future__ import annotations

import ast
import json
import os
import shutil
from pathlib import Path

import pytest

from lucid_yolo.perf.machine import Machine, choose_accelerator, describe_machine, is_older_than, usable_cores
from tests.perf.machines import CUDA, make_config

SOURCES = Path(__file__).parents[2] / "lucid_yolo"
PROBES = {
    "cpu_count",
    "device_count",
    "disk_usage",
    "get_device_properties",
    "is_available",
    "process_cpu_count",
    "sched_getaffinity",
}


def probing(folder: Path) -> dict[str, set[str]]:
    """Modules under a folder that read hardware facts, with what they call; benchmarks may record what they ran on."""
    found = {}
    for path in folder.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        names = {node.attr for node in nodes if isinstance(node, ast.Attribute)} & PROBES
        if names and path.parent.name != "bench":
            found[path.relative_to(folder).as_posix()] = names
    return found


@pytest.mark.parametrize(
    ("version", "release", "older"),
    [
        ("2.9.0a0+git1234", (2, 9), True),
        ("2.9.0.dev20250901", (2, 9), True),
        ("2.9.0rc3", (2, 9), True),
        ("2.9.0", (2, 9), False),
        ("2.9", (2, 9), False),
        ("2.9.1rc1", (2, 9), False),
        ("2.10.0a0", (2, 9), False),
        ("2.13.0+cu128", (2, 9), False),
        ("2.8.1", (2, 9), True),
        ("2.9.0", (2, 9, 1), True),
        ("3.0", (2, 9), False),
    ],
)
def test_pre_releases_are_older_than_their_final_release(version, release, older):
    assert is_older_than(version, release) is older


@pytest.mark.parametrize(
    ("requested", "present", "chosen"),
    [
        ("auto", ("cpu", "cuda", "mps"), "cuda"),
        ("auto", ("cpu", "mps"), "mps"),
        ("auto", ("cpu",), "cpu"),
        ("cpu", ("cpu", "cuda"), "cpu"),
        ("cuda", ("cpu",), "cpu"),
    ],
)
def test_choice_of_the_accelerator(requested, present, chosen):
    assert choose_accelerator(requested, present)[0] == chosen


def test_an_absent_accelerator_is_named_in_the_reason():
    assert choose_accelerator("cuda", ("cpu",))[1] == "cuda was requested and is not present"


@pytest.mark.parametrize(("affinity", "quota", "cores"), [(8, None, 8), (8, 2.5, 2), (8, 0.5, 1), (2, 16.0, 2)])
def test_cores_follow_affinity_and_quota(affinity, quota, cores):
    assert usable_cores(affinity, quota) == cores


def test_this_machine():
    machine = describe_machine(make_config(accelerator="cpu"))
    assert machine.accelerator == "cpu"
    assert 1 <= machine.cores <= os.cpu_count()
    assert 0 < machine.memory_available <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert machine.has_torch(2, 9)
    assert machine.cache_disk_free > 0
    assert machine.start_method in ("fork", "spawn", "forkserver")


def test_the_disk_of_a_cache_directory_that_is_not_there_yet(tmp_path, monkeypatch):
    monkeypatch.setenv("LUCID_YOLO_CACHE", str(tmp_path / "not" / "yet"))
    assert describe_machine(make_config(accelerator="cpu")).cache_disk_free == pytest.approx(
        shutil.disk_usage(tmp_path).free, rel=0.05
    )


def test_auto_agrees_with_torch():
    import torch

    machine = describe_machine(make_config())
    assert ("cuda" in machine.accelerators) == torch.cuda.is_available()
    assert len(machine.cuda_devices) == torch.cuda.device_count()
    assert machine.torch_version.split("+")[0] == torch.__version__.split("+")[0]


def test_record_survives_json():
    assert Machine.from_dict(json.loads(json.dumps(CUDA.as_dict()))) == CUDA


def test_hardware_is_read_in_one_place():
    found = probing(SOURCES)
    assert found.keys() == {"perf/machine.py"}, found


def test_a_planted_probe_is_found(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "loader.py").write_text("workers = os.cpu_count()\n")
    assert probing(tmp_path) == {"data/loader.py": {"cpu_count"}}
