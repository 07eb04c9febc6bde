"""The loss on a CUDA device: no wait for it, the same bits twice under strict determinism, the CPU's values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch

from lucid_yolo.config.tasks import AssignerConfig, LossConfig
from lucid_yolo.data.batch import Targets
from lucid_yolo.losses.detection import DetectionLoss
from lucid_yolo.nn.predictions import BranchPredictions, Predictions
from lucid_yolo.ops.anchors import make_anchors
from lucid_yolo.tasks.detect.decode import decode_one_to_many, decode_one_to_one

pytestmark = pytest.mark.gpu
ANCHORS, CLASSES, BATCH, ROWS = make_anchors(640, (8, 16, 32)), 8, 4, 128


@contextmanager
def strict() -> Iterator[None]:
    """Refuse operations that run in random order and calls that wait for the device."""
    torch.use_deterministic_algorithms(True)
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
        torch.use_deterministic_algorithms(False)


def make_case(device: str, objects: int, dtype: torch.dtype = torch.float32) -> tuple[Predictions, Targets]:
    generator = torch.Generator().manual_seed(0)
    branches = []
    for _ in range(2):
        distances = torch.rand(BATCH, len(ANCHORS), 4, generator=generator) * 4 + 0.2
        logits = torch.randn(BATCH, len(ANCHORS), CLASSES, generator=generator)
        leaves = (t.to(device, dtype).requires_grad_() for t in (distances, logits))
        branches.append(BranchPredictions(*leaves))
    corner = torch.rand(ROWS, 2, generator=generator) * 500
    boxes = torch.cat((corner, corner + 10 + torch.rand(ROWS, 2, generator=generator) * 120), -1)
    targets = Targets(
        image_index=torch.randint(0, BATCH, (ROWS,), generator=generator).to(device),
        classes=torch.randint(0, CLASSES, (ROWS,), generator=generator).to(device),
        boxes=boxes.to(device),
        valid=(torch.arange(ROWS) < objects).to(device),
    )
    return Predictions(*branches), targets


def run(device: str, objects: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Parts and gradients."""
    predictions, targets = make_case(device, objects, dtype)
    loss = DetectionLoss(CLASSES, ANCHORS, LossConfig(), AssignerConfig()).to(device)
    with strict() if device == "cuda" else nullcontext():
        with torch.autocast(device, torch.bfloat16, enabled=dtype != torch.float32):
            losses = loss(predictions, targets)
        losses.total.backward()
    gradients = [leaf.grad for branch in predictions for leaf in branch]
    return [losses.parts, *(g for g in gradients if g is not None)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("objects", [0, 100])
def test_no_wait_and_the_same_bits_twice(objects: int, dtype: torch.dtype) -> None:
    first, second = run("cuda", objects, dtype), run("cuda", objects, dtype)
    assert len(first) == 5
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("objects", [0, 1, 100])
def test_equals_the_cpu(objects: int) -> None:
    for here, there in zip(run("cpu", objects), run("cuda", objects), strict=True):
        torch.testing.assert_close(there.cpu(), here, rtol=1e-4, atol=1e-6)


def test_decoders_do_not_wait_and_equal_the_cpu() -> None:
    there, _ = make_case("cuda", 0)
    here, _ = make_case("cpu", 0)
    anchors = ANCHORS.to("cuda")
    with strict():
        decoded = decode_one_to_one(there.one_to_one, anchors), decode_one_to_many(there.one_to_many, anchors)
    expected = decode_one_to_one(here.one_to_one, ANCHORS), decode_one_to_many(here.one_to_many, ANCHORS)
    for got, wanted in zip(decoded, expected, strict=True):
        torch.testing.assert_close(got.scores.cpu(), wanted.scores, rtol=1e-5, atol=1e-6)
