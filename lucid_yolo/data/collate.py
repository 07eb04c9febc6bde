"""Samples to batches of static shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import get_worker_info

from lucid_yolo.data.batch import Batch
from lucid_yolo.data.empty import empty_rows
from lucid_yolo.data.sample import Sample
from lucid_yolo.data.statistics import next_bucket
from lucid_yolo.ops.letterbox import Letterbox


@dataclass(slots=True)
class ValBatch:
    """One batch of letterboxed pictures; always full.

    Attributes:
        images: (B, S, S, 3) uint8 RGB.
        letterboxes: where each picture lies on its canvas.
        indices: (B,) int64 positions in the split; -1 where the last batch repeats a picture to be full.
    """

    images: Tensor
    letterboxes: tuple[Letterbox, ...]
    indices: Tensor

    @property
    def image_size(self) -> int:
        """Side of the canvas in pixels."""
        return self.images.shape[1]

    def images_nchw(self) -> Tensor:
        """View the images as (B, 3, S, S) uint8 in channels_last memory, without a copy."""
        return self.images.permute(0, 3, 1, 2)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        """Copy the images to a device."""
        return replace(self, images=self.images.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """Copy the images to page-locked memory; the loader calls it by name."""
        return replace(self, images=self.images.pin_memory())


@dataclass(frozen=True, slots=True)
class ValItem:
    """One letterboxed picture.

    Attributes:
        image: (S, S, 3) uint8 RGB.
        letterbox: where the picture lies on it.
        index: position in the split.
        problem: why a blank stands in for the file, else None.
    """

    image: NDArray[np.uint8]
    letterbox: Letterbox
    index: int
    problem: str | None = None


def collate(samples: Sequence[Sample], *, rows: int) -> Batch:
    """Pack training samples.

    Args:
        samples: B samples of one canvas size.
        rows: usual number of target rows; a batch with more objects takes the next power of two.

    Returns:
        A batch whose target rows are padded to a bucket size.
    """
    counts = [len(sample.objects) for sample in samples]
    total = sum(counts)
    bucket = next_bucket(total, rows)
    targets = empty_rows(bucket)
    targets.image_index[:total] = torch.arange(len(samples)).repeat_interleave(torch.tensor(counts))
    targets.classes[:total] = torch.from_numpy(np.concatenate([sample.objects.classes for sample in samples]))
    targets.boxes[:total] = torch.from_numpy(np.concatenate([sample.objects.boxes for sample in samples]))
    targets.valid[:total] = True
    labels = [sample.objects.labels for sample in samples if sample.objects.labels is not None]
    if labels:
        rows_of_all = np.concatenate([one.target_rows(samples[0].image.shape[0]) for one in labels])
        padded = np.zeros((bucket, *rows_of_all.shape[1:]), rows_of_all.dtype)
        padded[:total] = rows_of_all
        targets = replace(targets, **{labels[0].field: torch.from_numpy(padded)})
    return Batch(
        images=stack_images([sample.image for sample in samples]),
        targets=targets,
        gains=torch.from_numpy(np.stack([sample.gains for sample in samples])),
        indices=torch.tensor([sample.index for sample in samples]),
    )


def collate_val(items: Sequence[ValItem], *, batch_size: int) -> ValBatch:
    """Pack letterboxed pictures; a short batch is filled by repeating its last picture."""
    missing = batch_size - len(items)
    filled = [*items, *[items[-1]] * missing]
    indices = [item.index for item in items] + [-1] * missing
    return ValBatch(
        images=stack_images([item.image for item in filled]),
        letterboxes=tuple(item.letterbox for item in filled),
        indices=torch.tensor(indices),
    )


def stack_images(images: Sequence[NDArray[np.uint8]]) -> Tensor:
    """Copy images of one size into (B, S, S, 3) uint8; in a worker, into the memory that the main process will read."""
    shape = (len(images), *images[0].shape)
    stacked = torch.empty(0, dtype=torch.uint8)
    if get_worker_info() is not None:
        stacked.set_(torch.UntypedStorage._new_shared(int(np.prod(shape)), device="cpu"))  # type: ignore[no-untyped-call]
    stacked.resize_(shape)
    view = stacked.numpy()
    for position, image in enumerate(images):
        view[position] = image
    return stacked
