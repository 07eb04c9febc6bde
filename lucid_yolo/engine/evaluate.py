"""Evaluations for the fit, the final report and the verb ``validate``: a forward, the decoders, the metric."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.loader import ValBatch
from lucid_yolo.eval.metrics import SplitMetrics
from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.images import scale_images
from lucid_yolo.tasks.base import Decoder, Task


@dataclass(frozen=True)
class Evaluation:
    """Outcome of one decoder.

    Attributes:
        metrics: scores.
        detections: one entry an image of the split.
    """

    metrics: SplitMetrics
    detections: tuple[Detections, ...]


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Give the arithmetic of the training step to an evaluation.

    Args:
        precision: "32-true", "bf16-mixed" or "16-mixed".
        device: where the model runs.
    """
    dtypes = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
    return torch.autocast(device.type, dtypes[precision]) if precision in dtypes else nullcontext()


def predict_split(
    model: nn.Module,
    task: Task,
    decoders: Sequence[Decoder],
    loader: Iterable[ValBatch],
    *,
    num_images: int,
    device: torch.device,
    precision: str,
) -> list[tuple[Detections, ...]]:
    """Run a model over a split, one forward for all decoders.

    Returns:
        For each decoder the detections of each image, in the frame of the original picture.
    """
    found: list[list[Detections | None]] = [[None] * num_images for _ in decoders]
    memory_format = torch.contiguous_format if device.type == "mps" else torch.channels_last
    with torch.no_grad(), autocast(precision, device):
        for batch in loader:
            on_device = batch.to(device, non_blocking=True)
            predictions = model(scale_images(on_device.images_nchw(), memory_format=memory_format))
            for decoder, images in zip(decoders, found, strict=True):
                detections = task.decode(decoder, predictions, batch.letterboxes, batch.image_size)
                for index, one in zip(batch.indices.tolist(), detections, strict=True):
                    if index >= 0:
                        images[index] = one
    complete: list[tuple[Detections, ...]] = []
    for images in found:
        missing = sum(one is None for one in images)
        assert missing == 0, f"{missing} images of the split were not evaluated"
        complete.append(tuple(one for one in images if one is not None))
    return complete


def evaluate(
    model: nn.Module,
    task: Task,
    decoders: Sequence[Decoder],
    loader: Iterable[ValBatch],
    index: SplitIndex,
    *,
    device: torch.device,
    precision: str,
) -> dict[Decoder, Evaluation]:
    """Score a model on a split.

    Args:
        model: network in evaluation mode.
        task: its task.
        decoders: which branches to score.
        loader: batches of the split.
        index: its labels.
        device: where the model is.
        precision: arithmetic, see ``autocast``.
    """
    results = predict_split(model, task, decoders, loader, num_images=len(index), device=device, precision=precision)
    return {
        decoder: Evaluation(task.evaluate(index, detections), detections)
        for decoder, detections in zip(decoders, results, strict=True)
    }


def score(
    model: nn.Module,
    task: Task,
    decoder: Decoder,
    loader: Iterable[ValBatch],
    index: SplitIndex,
    *,
    device: torch.device,
    precision: str,
) -> dict[str, float]:
    """Give the scores of one decoder by name: those of ``evaluate``, without what only a report shows.

    Args:
        model: network in evaluation mode.
        task: its task.
        decoder: which branch to score.
        loader: batches of the split.
        index: its labels.
        device: where the model is.
        precision: arithmetic, see ``autocast``.
    """
    results = predict_split(model, task, (decoder,), loader, num_images=len(index), device=device, precision=precision)
    return task.metric_values(task.score(index, results[0]))
