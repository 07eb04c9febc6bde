"""A small network with its loss, and batches for it."""

from __future__ import annotations

import torch
from torch import Tensor

from lucid_yolo.config.tasks import TaskConfig, TaskName
from lucid_yolo.data.batch import Targets
from lucid_yolo.data.labels.base import LabelSpec
from lucid_yolo.losses.detection import DetectionLoss
from lucid_yolo.nn.model import Detector, Scale
from lucid_yolo.tasks import get_task
from tests.nn.networks import shorten

CLASSES = 3


def make_objective(image_size: int, *, device: str = "cpu", short: bool = False) -> tuple[Detector, DetectionLoss]:
    """A detector of a few thousand parameters, or little but its head, and the loss of its task."""
    torch.manual_seed(0)
    network = Detector(Scale("tiny", 0.5, 0.125, 128), CLASSES)
    if short:
        shorten(network)
    loss = get_task(TaskName.DETECT).build_loss(TaskConfig(name=TaskName.DETECT), LabelSpec(CLASSES), image_size)
    assert isinstance(loss, DetectionLoss)
    return network.to(device, memory_format=torch.channels_last), loss.to(device)


def make_batch(
    image_size: int, *, batch: int, objects: int, rows: int, device: str = "cpu", seed: int = 0
) -> tuple[Tensor, Targets]:
    """Random images, and objects that lie in them in turn; what is left of the rows is padding."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(batch, 3, image_size, image_size, generator=generator)
    corner = torch.rand(rows, 2, generator=generator) * image_size * 0.5
    side = (0.1 + 0.3 * torch.rand(rows, 2, generator=generator)) * image_size
    valid = torch.arange(rows) < objects
    targets = Targets(
        image_index=torch.where(valid, torch.arange(rows) % batch, 0).to(device),
        classes=torch.where(valid, torch.arange(rows) % CLASSES, 0).to(device),
        boxes=torch.where(valid[:, None], torch.cat((corner, corner + side), 1), 0.0).to(device),
        valid=valid.to(device),
    )
    return images.to(device, memory_format=torch.channels_last), targets
