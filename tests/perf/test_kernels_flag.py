"""``kernels`` in the plan: which machines have it, and what it goes together with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.schema import CompileName, KernelsName, OnUnmet, PrecisionName
from lucid_yolo.perf.plan import resolve
from tests.perf.machines import CPU, CUDA, MPS, OLD_CUDA, make_config

NO_COMPILER = replace(CUDA, host_compiler=None)


@pytest.mark.parametrize(
    ("name", "machine", "active", "rule"),
    [
        (KernelsName.STOCK, CUDA, "stock", None),
        (KernelsName.STOCK, CPU, "stock", None),
        (KernelsName.FUSED, CUDA, "fused", None),
        (KernelsName.FUSED, CPU, "stock", "kernels.needs-cuda"),
        (KernelsName.FUSED, MPS, "stock", "kernels.needs-cuda"),
        (KernelsName.FUSED, OLD_CUDA, "stock", "kernels.needs-capability"),
        (KernelsName.FUSED, NO_COMPILER, "stock", "kernels.needs-compiler"),
    ],
)
def test_whose_kernels(name, machine, active, rule):
    row = resolve(make_config(kernels=name), machine, None)["kernels"]
    assert (row.requested, row.active, row.rule_id) == (str(name), active, rule)
    assert bool(row.reason) == bool(rule)


@pytest.mark.parametrize("capture", [["network"], ["network", "loss", "updates"], ["step"], ["auto"]])
def test_it_goes_with_every_recording(capture):
    plan = resolve(make_config(kernels=KernelsName.FUSED, capture=capture), CUDA, None)
    assert plan["kernels"].active == "fused"
    assert all(plan[f"capture.{name}"].active for name in capture)


@pytest.mark.parametrize("precision", list(PrecisionName))
def test_it_goes_with_every_precision(precision):
    assert resolve(make_config(kernels=KernelsName.FUSED, precision=precision), CUDA, None)["kernels"].active == "fused"


def test_it_is_refused_with_a_compiled_step_on_any_machine():
    for machine in (CPU, CUDA):
        with pytest.raises(ConfigError, match=r"kernels\.or-compile"):
            resolve(make_config(kernels=KernelsName.FUSED, compile=CompileName.STEP), machine, None)
    assert resolve(make_config(compile=CompileName.STEP), CUDA, None)["compile"].active == "step"


def test_a_measured_run_is_refused_instead_for_one_reason():
    with pytest.raises(ConfigError, match=r"kernels\.needs-cuda") as caught:
        resolve(make_config(kernels=KernelsName.FUSED, on_unmet=OnUnmet.RAISE), CPU, None)
    assert len(caught.value.problems) == 1
