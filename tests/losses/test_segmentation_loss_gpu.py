"""The loss on a CUDA device: no wait for it, the same bits twice under strict determinism, the CPU's values."""

from __future__ import annotations

import gc
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from lucid_yolo.config.tasks import AssignerConfig, SegmentLossConfig
from lucid_yolo.data.batch import Targets
from lucid_yolo.losses.segmentation import SegmentationLoss
from lucid_yolo.nn.predictions import SegmentBranch, SegmentPredictions
from lucid_yolo.ops.anchors import make_anchors
from tests.losses.test_detection_loss_gpu import strict

pytestmark = pytest.mark.gpu
SIZE, CLASSES, BATCH, ROWS = 320, 8, 4, 128
ANCHORS = make_anchors(SIZE, (8, 16, 32))


def leaves(predictions: SegmentPredictions) -> list[Tensor]:
    assert isinstance(predictions.semantic, Tensor)
    return [*predictions.one_to_many, *predictions.one_to_one, predictions.prototypes, predictions.semantic]


def make_case(device: str, objects: int, dtype: torch.dtype) -> tuple[SegmentPredictions, Targets]:
    generator = torch.Generator().manual_seed(0)
    flat = []
    for _ in range(2):
        flat.append(torch.rand(BATCH, len(ANCHORS), 4, generator=generator) * 4 + 0.2)
        flat.append(torch.randn(BATCH, len(ANCHORS), CLASSES, generator=generator))
        flat.append(torch.randn(BATCH, len(ANCHORS), 32, generator=generator).tanh())
    for channels, stride in ((32, 4), (CLASSES, 8)):
        maps = torch.randn(BATCH, channels, SIZE // stride, SIZE // stride, generator=generator)
        flat.append(maps.to(memory_format=torch.channels_last))
    flat = [tensor.to(device, dtype).requires_grad_() for tensor in flat]
    corner = torch.rand(ROWS, 2, generator=generator) * 220
    boxes = torch.cat((corner, corner + 10 + torch.rand(ROWS, 2, generator=generator) * 80), -1)
    valid = torch.arange(ROWS) < objects
    masks = torch.randint(0, 256, (ROWS, SIZE // 4, SIZE // 32), generator=generator, dtype=torch.uint8)
    masks[~valid] = 0
    targets = Targets(
        image_index=torch.where(valid, torch.randint(0, BATCH, (ROWS,), generator=generator), 0),
        classes=torch.where(valid, torch.randint(0, CLASSES, (ROWS,), generator=generator), 0),
        boxes=boxes,
        valid=valid,
        masks=masks,
    )
    return SegmentPredictions(SegmentBranch(*flat[:3]), SegmentBranch(*flat[3:6]), *flat[6:]), targets.to(device)


def run(device: str, objects: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Parts and gradients."""
    predictions, targets = make_case(device, objects, dtype)
    loss = SegmentationLoss(CLASSES, ANCHORS, SegmentLossConfig(), AssignerConfig()).to(device)
    with strict() if device == "cuda" else nullcontext():
        with torch.autocast(device, torch.bfloat16, enabled=dtype != torch.float32):
            losses = loss(predictions, targets)
        losses.total.backward()
    gradients = [leaf.grad for leaf in leaves(predictions)]
    return [losses.parts, *(g for g in gradients if g is not None)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("objects", [0, 100])
def test_no_wait_and_the_same_bits_twice(objects: int, dtype: torch.dtype) -> None:
    first, second = run("cuda", objects, dtype), run("cuda", objects, dtype)
    assert len(first) == 9
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("objects", [0, 1, 100])
def test_equals_the_cpu(objects: int) -> None:
    for here, there in zip(run("cpu", objects), run("cuda", objects), strict=True):
        torch.testing.assert_close(there.cpu(), here, rtol=1e-4, atol=1e-5)


def test_memory_does_not_grow_with_the_number_of_objects_and_keeps_no_logits() -> None:
    peaks = []
    for objects in (1, 1, 100):  # once for what libraries take when they start
        predictions, targets = make_case("cuda", objects, torch.float32)
        loss = SegmentationLoss(CLASSES, ANCHORS, SegmentLossConfig(), AssignerConfig()).to("cuda")
        gc.collect()  # what other tests left must not be given back in between
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        # What is asked for: what is given depends on the free blocks that other tests left.
        before = torch.cuda.memory_stats()["requested_bytes.all.current"]
        loss(predictions, targets).total.backward()
        peaks.append(torch.cuda.memory_stats()["requested_bytes.all.peak"] - before)
    assert peaks[1] == pytest.approx(peaks[2], rel=0.01)
    every_logit = BATCH * 160 * (SIZE // 4) ** 2 * 4
    assert peaks[1] < 3 * every_logit
