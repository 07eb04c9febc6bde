"""``capture`` and ``compile`` in the plan: what may be combined, and what the first unmet condition is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.regions import OF_EVERY_TASK, OPTIONS, REGIONS, STEP
from lucid_yolo.config.schema import (
    AdamWConfig,
    CompileName,
    DepthwiseName,
    KernelsName,
    MuSGDConfig,
    OnUnmet,
    PrecisionName,
    SGDConfig,
)
from lucid_yolo.perf.plan import RunPlan, resolve
from tests.perf.machines import CPU, CUDA, MPS, OLD_CUDA, make_config

OPTIMIZER_REGIONS = ("orthogonalization", "updates")


def states(plan: RunPlan) -> dict[str, tuple[object, object]]:
    return {row.key: (row.requested, row.active) for row in plan.rows if row.key.startswith(("capture.", "compile"))}


def test_nothing_is_recorded_or_compiled_by_default() -> None:
    assert states(resolve(make_config(), CUDA, None)) == {
        **{f"capture.{option}": (False, False) for option in OPTIONS},
        "compile": ("none", "none"),
    }


@pytest.mark.parametrize("precision", [PrecisionName.AUTO, PrecisionName.FP32, PrecisionName.BF16, PrecisionName.FP16])
@pytest.mark.parametrize(
    "capture", [REGIONS, ("heads",), ("network",), OPTIMIZER_REGIONS, ("gradient_norm", "updates")]
)
def test_selected_regions_are_active_on_cuda_in_every_precision(
    precision: PrecisionName, capture: tuple[str, ...]
) -> None:
    plan = resolve(make_config(task="segment", capture=capture, precision=precision), CUDA, None)
    assert states(plan) == {
        **{f"capture.{option}": (option in capture, option in capture) for option in OPTIONS},
        "compile": ("none", "none"),
    }
    assert not any(plan[f"capture.{region}"].reason for region in REGIONS)


@pytest.mark.parametrize("machine", [CPU, CUDA, MPS])
@pytest.mark.parametrize("task", ["detect", "keypoints", "obb"])
def test_heads_are_of_segmentation_alone(task: str, machine) -> None:
    with pytest.raises(ConfigError, match=rf"the task is {task}.*\[capture\.heads\.needs-segment\]") as caught:
        resolve(make_config(task=task, capture=["network", "heads"]), machine, None)
    assert len(caught.value.problems) == 1
    resolve(make_config(task=task, capture=["network"]), machine, None)


@pytest.mark.parametrize("torch_version", ["2.9.0rc1", "2.9.0a0+nv", "2.8.1"])
def test_bf16_on_an_old_torch_records_in_float32(torch_version: str) -> None:
    config = make_config(capture=["network", "gradient_norm"], precision=PrecisionName.BF16)
    plan = resolve(config, replace(CUDA, torch_version=torch_version), None)
    assert (plan["precision"].active, plan["capture.network"].active) == ("32-true", True)
    assert plan["capture.gradient_norm"].rule_id == "capture.gradient_norm.needs-torch"


@pytest.mark.parametrize("machine", [CPU, MPS])
def test_off_cuda_every_flag_falls_back(machine) -> None:
    plan = resolve(make_config(task="segment", capture=REGIONS, clip_norm=None), machine, None)
    assert all(plan[f"capture.{region}"].rule_id == f"capture.{region}.needs-cuda" for region in REGIONS)
    assert resolve(make_config(compile=CompileName.STEP), machine, None)["compile"].active == "none"


@pytest.mark.parametrize("clip_norm", [None, 0.0, -1.0])
def test_without_clipping_there_is_no_norm_to_record(clip_norm: float | None) -> None:
    plan = resolve(make_config(capture=OF_EVERY_TASK, clip_norm=clip_norm), CUDA, None)
    assert plan["capture.gradient_norm"].rule_id == "capture.gradient_norm.needs-clipping"
    assert plan["capture.network"].active is True


def test_without_muon_there_is_nothing_of_it_to_record() -> None:
    musgd = MuSGDConfig(name="musgd", lr=0.01, muon_weight=0.0)
    plan = resolve(make_config(capture=OF_EVERY_TASK, optimizer=musgd), CUDA, None)
    assert [region for region in OF_EVERY_TASK if not plan[f"capture.{region}"].active] == list(OPTIMIZER_REGIONS)


@pytest.mark.parametrize("machine", [CPU, CUDA, MPS])
@pytest.mark.parametrize("optimizer", [SGDConfig(name="sgd", lr=0.1), AdamWConfig(name="adamw", lr=0.1)])
def test_another_optimizer_is_refused_on_every_machine(machine, optimizer) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(make_config(capture=OF_EVERY_TASK, optimizer=optimizer), machine, None)
    assert len(caught.value.problems) == 2
    others = [region for region in OF_EVERY_TASK if region not in OPTIMIZER_REGIONS]
    resolve(make_config(capture=others, optimizer=optimizer), machine, None)


@pytest.mark.parametrize("machine", [CPU, CUDA, MPS])
def test_network_and_loss_exclude_compilation_and_the_others_do_not(machine) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(make_config(task="segment", capture=REGIONS, compile=CompileName.STEP), machine, None)
    assert [problem.rpartition(" ")[2] for problem in caught.value.problems] == [
        "[capture.network.or-compile]",
        "[capture.heads.or-compile]",
        "[capture.loss.or-compile]",
    ]
    resolve(make_config(capture=("gradient_norm", *OPTIMIZER_REGIONS), compile=CompileName.STEP), machine, None)


@pytest.mark.parametrize("machine", [CPU, CUDA, MPS])
def test_a_compiled_loss_leaves_the_network_to_recordings_and_our_kernels(machine) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(make_config(task="segment", capture=REGIONS, compile=CompileName.LOSS), machine, None)
    assert [problem.rpartition(" ")[2] for problem in caught.value.problems] == ["[capture.loss.or-compile]"]
    others = [region for region in REGIONS if region != "loss"]
    resolve(make_config(task="segment", capture=others, compile=CompileName.LOSS), machine, None)
    own = make_config(compile=CompileName.LOSS, kernels=KernelsName.FUSED, depthwise=DepthwiseName.TRITON)
    plan = resolve(own, machine, None)
    on_cuda = machine is CUDA
    assert (plan["kernels"].active, plan["depthwise"].active, plan["compile"].active) == (
        ("fused", "triton", "loss") if on_cuda else ("stock", "stock", "none")
    )


@pytest.mark.parametrize("compiled", [CompileName.LOSS, CompileName.STEP])
def test_compilation_needs_its_tools(compiled: CompileName) -> None:
    config = make_config(compile=compiled)
    assert resolve(config, CUDA, None)["compile"].active == str(compiled)
    assert resolve(config, OLD_CUDA, None)["compile"].active == str(compiled)
    bare = replace(CUDA, triton=False, host_compiler=None)
    assert resolve(config, bare, None)["compile"].rule_id == "compile.needs-triton"
    config.on_unmet = OnUnmet.RAISE
    with pytest.raises(ConfigError, match=r"(?s)compile\.needs-triton.*compile\.needs-compiler"):
        resolve(config, bare, None)


@pytest.mark.parametrize("machine", [CPU, CUDA, MPS])
@pytest.mark.parametrize("region", REGIONS)
def test_the_whole_step_goes_with_no_region(region: str, machine) -> None:
    with pytest.raises(ConfigError, match=rf"select it or {region} \[capture\.step\.alone\]"):
        resolve(make_config(task="segment", capture=[region, STEP]), machine, None)


@pytest.mark.parametrize("task", ["detect", "segment", "keypoints", "obb"])
@pytest.mark.parametrize("optimizer", [None, SGDConfig(name="sgd", lr=0.1), AdamWConfig(name="adamw", lr=0.1)])
def test_the_whole_step_is_recorded_for_every_task_and_optimizer_compiled_or_not(task: str, optimizer) -> None:
    for compiled in CompileName:
        config = make_config(task=task, capture=[STEP], optimizer=optimizer, compile=compiled)
        plan = resolve(config, CUDA, None)
        assert (plan["capture.step"].active, plan["compile"].active) == (True, str(compiled))


@pytest.mark.parametrize("machine", [CPU, MPS])
def test_only_a_precision_that_a_run_gets_has_a_scaler(machine) -> None:
    asked = {"capture": [STEP], "precision": PrecisionName.FP16}
    with pytest.raises(ConfigError) as caught:
        resolve(make_config(**asked, on_unmet=OnUnmet.RAISE), machine, None)
    assert [problem.rpartition(" ")[2] for problem in caught.value.problems] == [
        "[capture.step.needs-cuda]",
        "[precision.mixed-needs-cuda]",
    ]
    assert resolve(make_config(**asked), CUDA, None)["capture.step"].rule_id == "capture.step.no-scaler"
    for precision in set(PrecisionName) - {PrecisionName.FP16}:
        assert resolve(make_config(capture=[STEP], precision=precision), CUDA, None)["capture.step"].active is True
