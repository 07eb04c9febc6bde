"""The loss of key points on a CUDA device: no wait for it, the same bits twice, the CPU's values, bounded memory."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from lucid_yolo.config.tasks import AssignerConfig, KeypointLossConfig
from lucid_yolo.data.batch import Targets
from lucid_yolo.losses.keypoints import KeypointLoss
from lucid_yolo.nn.predictions import KeypointBranch, KeypointPredictions
from tests.losses.test_detection_loss_gpu import ANCHORS, BATCH, CLASSES, ROWS, make_case, strict

pytestmark = pytest.mark.gpu
POINTS = 17


def make_loss(device: str) -> KeypointLoss:
    torch.manual_seed(0)
    config = KeypointLossConfig(oks=24.0)
    loss = KeypointLoss(CLASSES, (0.07,) * POINTS, ANCHORS, config, AssignerConfig())
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    return loss.to(device)


def make_keypoint_case(device: str, objects: int, dtype: torch.dtype) -> tuple[KeypointPredictions, Targets]:
    boxes, targets = make_case(device, objects, dtype)
    generator = torch.Generator().manual_seed(1)
    branches = []
    for branch in boxes:
        points = torch.randn(BATCH, len(ANCHORS), POINTS, 4, generator=generator)
        branches.append(KeypointBranch(*branch, points.to(device, dtype).requires_grad_()))
    low, high = targets.boxes.cpu().unsqueeze(1).chunk(2, -1)
    places = low + (high - low) * torch.rand(ROWS, POINTS, 2, generator=generator)
    learned = (torch.rand(ROWS, POINTS, 1, generator=generator) < 0.7).float()
    return KeypointPredictions(*branches), replace(targets, keypoints=torch.cat((places, learned), -1).to(device))


def run(device: str, objects: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Parts and gradients."""
    predictions, targets = make_keypoint_case(device, objects, dtype)
    loss = make_loss(device)
    with strict() if device == "cuda" else nullcontext():
        with torch.autocast(device, torch.bfloat16, enabled=dtype != torch.float32):
            losses = loss(predictions, targets)
        losses.total.backward()
    sources = [*(leaf for branch in predictions for leaf in branch), *loss.parameters()]
    return [losses.parts, *(source.grad for source in sources if source.grad is not None)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("objects", [0, 100])
def test_no_wait_and_the_same_bits_twice(objects: int, dtype: torch.dtype) -> None:
    first, second = run("cuda", objects, dtype), run("cuda", objects, dtype)
    assert len(first) == 1 + 6 + 36
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("objects", [0, 1, 100])
def test_equals_the_cpu(objects: int) -> None:
    for here, there in zip(run("cpu", objects), run("cuda", objects), strict=True):
        # A gradient of the flow is a sum over all points: what is left of it may be far smaller than what was added.
        torch.testing.assert_close(there.cpu(), here, rtol=1e-3, atol=1e-5 + 1e-4 * float(here.abs().max()))


def test_memory_is_that_of_the_slots() -> None:
    predictions, targets = make_keypoint_case("cuda", 100, torch.bfloat16)
    loss = make_loss("cuda")
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    loss(predictions, targets).total.backward()
    used = torch.cuda.max_memory_allocated() - before
    slots = 11 * ROWS * POINTS
    assert used < 8 * 1024 * slots + 400 * 2**20  # all anchors would take 3 KiB for each of 1.1 million points
