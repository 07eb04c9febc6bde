"""``hsv`` in the plan, and the fused kernel that gives way to torch: once, with its cause."""

from __future__ import annotations

import subprocess
import warnings
from dataclasses import replace

import pytest
import torch

from lucid_yolo.config.errors import ConfigError, RunError
from lucid_yolo.config.schema import HsvName, OnUnmet
from lucid_yolo.ops import colour_torch
from lucid_yolo.perf.colour import FusedColour
from lucid_yolo.perf.plan import resolve
from tests.ops.colours import GAINS, as_batch, from_workers, spread_colours
from tests.perf.machines import CPU, CUDA, MPS, OLD_CUDA, make_config

NO_TRITON = replace(CUDA, triton=False, host_compiler=None)


@pytest.fixture
def kernel():
    return pytest.importorskip("lucid_yolo.perf.kernels.colour")


@pytest.mark.parametrize(
    ("name", "machine", "active", "fused"),
    [
        (HsvName.WORKER, CUDA, ("worker", None), (False, False, None)),
        (HsvName.WORKER, CPU, ("worker", None), (False, False, None)),
        (HsvName.DEVICE, CUDA, ("device", None), (True, True, None)),
        (HsvName.DEVICE, OLD_CUDA, ("device", None), (True, False, "hsv.fused.needs-capability")),
        (HsvName.DEVICE, NO_TRITON, ("device", None), (True, False, "hsv.fused.needs-triton")),
        (HsvName.DEVICE, MPS, ("worker", "hsv.needs-cuda"), (True, False, None)),
        (HsvName.DEVICE_NATIVE, CUDA, ("device_native", None), (False, False, None)),
        (HsvName.DEVICE_NATIVE, NO_TRITON, ("device_native", None), (False, False, None)),
        (HsvName.DEVICE_NATIVE, CPU, ("worker", "hsv.needs-cuda"), (False, False, None)),
    ],
)
def test_who_changes_colours(name, machine, active, fused):
    plan = resolve(make_config(hsv=name), machine, None)
    row, kernel_row = plan["hsv"], plan["hsv.fused"]
    assert (row.requested, row.active, row.rule_id) == (str(name), *active)
    assert (kernel_row.requested, kernel_row.active, kernel_row.rule_id) == fused
    assert (kernel_row.reason == "") == (kernel_row.requested == kernel_row.active)


@pytest.mark.parametrize(("machine", "rule"), [(CPU, "hsv.needs-cuda"), (OLD_CUDA, "hsv.fused.needs-capability")])
def test_a_measured_run_is_refused_instead(machine, rule):
    with pytest.raises(ConfigError, match=rule) as caught:
        resolve(make_config(hsv=HsvName.DEVICE, on_unmet=OnUnmet.RAISE), machine, None)
    assert len(caught.value.problems) == 1


def failing(error: Exception):
    def colour_and_scale(*_: object, **__: object):
        raise error

    return colour_and_scale


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (RuntimeError("Failed to find C compiler.\nMore."), "RuntimeError: Failed to find C compiler."),
        (ImportError("no libcuda"), "ImportError: no libcuda"),
        (subprocess.CalledProcessError(1, ["cc"]), r"CalledProcessError: Command .*'cc'.* non-zero exit status 1\."),
        (KeyError(), "KeyError: no reason given"),
    ],
)
def test_a_first_call_that_fails_is_named_once_and_torch_goes_on(monkeypatch, kernel, error, cause):
    monkeypatch.setattr(kernel, "colour_and_scale", failing(error))
    work = FusedColour(OnUnmet.FALLBACK)
    images, gains = as_batch(spread_colours(8), GAINS)
    with pytest.warns(UserWarning, match=rf"hsv\.fused: .*\({cause}\).*hsv=device_native") as caught:
        found = work(images, gains, dtype=torch.float32)
    assert len(caught) == 1
    assert torch.equal(found, from_workers(images, gains))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(work(images, gains, dtype=torch.float32), found)
    assert "\n" not in work.failure


def test_a_real_toolchain_that_cannot_use_a_processor_gives_way_too():
    images, gains = as_batch(spread_colours(8), GAINS)
    work = FusedColour(OnUnmet.FALLBACK)
    with pytest.warns(UserWarning, match=r"hsv\.fused"):
        assert torch.equal(work(images, gains, dtype=torch.float32), from_workers(images, gains))


def test_the_next_run_of_a_process_tries_again(monkeypatch, kernel):
    monkeypatch.setattr(kernel, "colour_and_scale", failing(RuntimeError("no")))
    images, gains = as_batch(spread_colours(4), GAINS)
    for _ in range(2):
        with pytest.warns(UserWarning, match="RuntimeError: no"):
            FusedColour(OnUnmet.FALLBACK)(images, gains, dtype=torch.float32)


def test_a_measured_run_ends_and_a_full_device_is_no_toolchain(monkeypatch, kernel):
    images, gains = as_batch(spread_colours(4), GAINS)
    monkeypatch.setattr(kernel, "colour_and_scale", failing(RuntimeError("no")))
    with pytest.raises(RunError, match=r"hsv=device: .*RuntimeError: no.*hsv=device_native"):
        FusedColour(OnUnmet.RAISE)(images, gains, dtype=torch.float32)
    monkeypatch.setattr(kernel, "colour_and_scale", failing(torch.OutOfMemoryError("full")))
    with pytest.raises(torch.OutOfMemoryError):
        FusedColour(OnUnmet.FALLBACK)(images, gains, dtype=torch.float32)


def test_a_kernel_that_worked_is_kept_and_its_later_errors_are_errors(monkeypatch, kernel):
    images, gains = as_batch(spread_colours(4), GAINS)
    calls: list[int] = []

    def once(*arguments: torch.Tensor, dtype: torch.dtype):
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("illegal address")
        return colour_torch.colour_and_scale(*arguments, dtype=dtype)

    monkeypatch.setattr(kernel, "colour_and_scale", once)
    work = FusedColour(OnUnmet.FALLBACK)
    work(images, gains, dtype=torch.float32)
    with pytest.raises(RuntimeError, match="illegal address"):
        work(images, gains, dtype=torch.float32)
    assert work.failure == ""
