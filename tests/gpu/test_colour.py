"""Colour on a CUDA device: both paths give the workers' bytes for every colour, never wait, and can be recorded."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lucid_yolo.ops import colour_torch
from tests.ops.colours import GAINS, as_batch, every_colour, from_workers, spread_colours

pytestmark = pytest.mark.gpu
PATHS = ["torch", "triton"]


def path_of(name: str):
    if name == "torch":
        return colour_torch.colour_and_scale
    from lucid_yolo.perf.kernels import colour

    return colour.colour_and_scale


@pytest.mark.parametrize("path", PATHS)
def test_all_colours_equal_the_workers(path: str) -> None:
    for planes in every_colour():
        images, gains = as_batch(planes, GAINS)
        found = path_of(path)(images.cuda(), gains.cuda(), dtype=torch.float32)
        assert torch.equal(found.cpu(), from_workers(images, gains))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("path", PATHS)
def test_half_precision_is_rounded_from_the_scaled_floats(path: str, dtype: torch.dtype) -> None:
    images, gains = as_batch(spread_colours(52), GAINS)
    found = path_of(path)(images.cuda(), gains.cuda(), dtype=dtype)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found.cpu(), from_workers(images, gains).to(dtype))


@pytest.mark.parametrize("path", PATHS)
def test_any_gains_equal_the_workers(path: str) -> None:
    generator = np.random.default_rng(0)
    images = torch.from_numpy(generator.integers(0, 256, (64, 96, 96, 3), dtype=np.uint8)).permute(0, 3, 1, 2)
    gains = torch.from_numpy(generator.uniform(0, 2, (64, 3)).astype(np.float32))
    found = path_of(path)(images.cuda(), gains.cuda(), dtype=torch.float32)
    assert torch.equal(found.cpu(), from_workers(images, gains))


@pytest.mark.parametrize("path", PATHS)
def test_nothing_waits_for_the_device(path: str) -> None:
    images, gains = (tensor.cuda() for tensor in as_batch(spread_colours(16), GAINS))
    work = path_of(path)
    work(images, gains, dtype=torch.float32)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        work(images, gains, dtype=torch.float32)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("path", PATHS)
def test_a_recorded_transform_follows_its_inputs(path: str) -> None:
    host, host_gains = as_batch(spread_colours(16), GAINS)
    images, gains = host.cuda(), host_gains.cuda()
    work = path_of(path)
    work(images, gains, dtype=torch.float32)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = work(images, gains, dtype=torch.float32)
    images.copy_(host.flip(0).contiguous(memory_format=torch.channels_last) ^ 85)
    gains.copy_(host_gains.roll(1, dims=0))
    graph.replay()
    assert torch.equal(found.cpu(), from_workers(images.cpu(), gains.cpu()))
