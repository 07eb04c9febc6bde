"""``depthwise`` in the plan: which machines build our kernels, and what the plan says of the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.schema import CompileName, DepthwiseName, OnUnmet
from lucid_yolo.perf.depthwise import TritonFilters, plan_filters
from lucid_yolo.perf.plan import resolve
from tests.perf.machines import CPU, CUDA, MPS, OLD_CUDA, make_config

NO_COMPILER, NO_TRITON = replace(CUDA, host_compiler=None), replace(CUDA, triton=False)


@pytest.mark.parametrize(
    ("machine", "active", "reason"),
    [
        (CUDA, "triton", "auto: ready at once"),
        (CPU, "stock", "auto: our kernels need CUDA, this run computes on cpu"),
        (MPS, "stock", "auto: our kernels need CUDA, this run computes on mps"),
        (OLD_CUDA, "stock", "auto: our kernels need a CUDA device of capability 8.0 or newer, Tesla T4 is older"),
        (NO_TRITON, "stock", "auto: our kernels need Triton, which cannot be imported here"),
        (NO_COMPILER, "stock", "auto: our kernels need a C compiler on the host, and none of"),
    ],
)
def test_auto_takes_them_where_they_can_be_built_without_a_warning(machine, active, reason):
    row = resolve(make_config(on_unmet=OnUnmet.RAISE), machine, None)["depthwise"]
    assert (row.requested, row.active, row.rule_id) == ("auto", active, None)
    assert row.reason.startswith(reason)


@pytest.mark.parametrize(
    ("name", "machine", "active", "rule"),
    [
        (DepthwiseName.STOCK, CUDA, "stock", None),
        (DepthwiseName.TRITON, CUDA, "triton", None),
        (DepthwiseName.TRITON, CPU, "stock", "depthwise.needs-cuda"),
        (DepthwiseName.TRITON, NO_COMPILER, "stock", "depthwise.needs-compiler"),
    ],
)
def test_what_is_asked_for_is_active_or_says_why_not(name, machine, active, rule):
    row = resolve(make_config(depthwise=name), machine, None)["depthwise"]
    assert (row.requested, row.active, row.rule_id) == (str(name), active, rule)


def test_a_compiled_step_has_torchs():
    row = resolve(make_config(compile=CompileName.STEP), CUDA, None)["depthwise"]
    assert (row.active, row.reason) == ("stock", "auto: compile=step looks for torch's")
    with pytest.raises(ConfigError, match=r"depthwise\.or-compile"):
        resolve(make_config(depthwise=DepthwiseName.TRITON, compile=CompileName.STEP), CUDA, None)


def test_a_plan_says_who_filters():
    for name, machine, expected in (("auto", CUDA, TritonFilters), ("stock", CUDA, None), ("auto", CPU, None)):
        config = make_config(depthwise=DepthwiseName(name))
        filters = plan_filters(resolve(config, machine, None), config)
        assert (filters is None) == (expected is None)
