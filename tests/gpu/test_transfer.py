"""Batches that are copied beside the step, while the device is busy with those before."""

from __future__ import annotations

import pytest
import torch

from lucid_yolo.data.batch import Batch, Targets
from lucid_yolo.engine.transfer import CopyBeside

pytestmark = pytest.mark.gpu


def make_batch(value: int, rows: int) -> Batch:
    return Batch(
        images=torch.full((8, 320, 320, 3), value, dtype=torch.uint8),
        targets=Targets(
            image_index=torch.full((rows,), value),
            classes=torch.full((rows,), value),
            boxes=torch.full((rows, 4), float(value)),
            valid=torch.ones(rows, dtype=torch.bool),
        ),
        gains=torch.full((8, 3), float(value)),
        indices=torch.full((8,), value),
    ).pin_memory()


def test_a_batch_is_whole_when_the_step_reads_it_and_until_it_is_over() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    transfer, ends = CopyBeside(device), []
    for value in range(40):
        batch = transfer(make_batch(value, rows=16 if value % 3 else 32), device)  # the form changes in between
        assert int(batch.indices[0]) == value
        torch.cuda._sleep(2_000_000)  # the device is behind: the host has sent the next batches by now
        parts = (batch.images, batch.gains, batch.targets.boxes, batch.targets.classes)
        ends.append(torch.stack([end.double() for part in parts for end in part.aminmax()]))
    found = torch.stack(ends).cpu()
    assert torch.equal(found, torch.arange(40.0).double().unsqueeze(1).expand(40, 8))
