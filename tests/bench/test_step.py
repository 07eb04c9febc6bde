"""The cost of an eager step, counted on a CPU so that a regression is seen without a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from lucid_yolo.bench.step import PARTS, StepRig, Workload, count_kernels, make_batch, measure
from lucid_yolo.config.compose import compose, to_root
from lucid_yolo.config.schema import RootConfig

TINY = Workload(batch=2, size=64, objects=3, classes=80, precision="32-true", device="cpu")
BOUND = 1_870  # 1,825 in either precision when this was written; the CPU's optimizer makes more stacks than CUDA's


@pytest.fixture(scope="module")
def root() -> RootConfig:
    """The default configuration; nobody changes it."""
    return to_root(compose())


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_nano_step_dispatches_few_operators(root: RootConfig, precision: str) -> None:
    rig = StepRig(replace(TINY, precision=precision), root)
    rig.step()  # lays out the optimizer's buffers
    first = count_kernels(rig)
    assert first == count_kernels(rig)
    assert first <= BOUND


def test_a_planted_operator_a_parameter_is_seen(root: RootConfig) -> None:
    class Wasteful(StepRig):
        def step(self, *arguments: object) -> torch.Tensor:
            for parameter in self.parameters:
                parameter.detach().clone()
            return super().step()

    lean, wasteful = (kind(TINY, root) for kind in (StepRig, Wasteful))
    lean.step()
    wasteful.step()
    assert count_kernels(wasteful) == count_kernels(lean) + len(wasteful.parameters)


def test_measure_reports_every_part(root: RootConfig) -> None:
    was = torch.are_deterministic_algorithms_enabled()
    try:
        row = measure(TINY, root, warmup=1, steps=3)
    finally:
        torch.use_deterministic_algorithms(was)
    assert tuple(row["parts_ms"]) == tuple(row["parts_host_ms"]) == PARTS
    assert row["step_ms"]["min"] <= row["step_ms"]["median"] <= row["step_ms"]["max"]
    assert row["peak_allocated_mib"] is None


@pytest.mark.parametrize("objects", [1, 40])
def test_batch_is_padded_to_a_power_of_two(objects: int) -> None:
    _, targets = make_batch(Workload(batch=2, size=64, objects=objects, device="cpu"), torch.device("cpu"))
    rows = len(targets.valid)
    assert rows & (rows - 1) == 0
    assert int(targets.valid.sum()) == 2 * objects
    inside = targets.boxes[targets.valid]
    assert bool((inside >= 0).all() and (inside <= 64).all() and (inside[:, 2:] > inside[:, :2]).all())
