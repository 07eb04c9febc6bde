"""What a training step receives: uint8 images and packed target rows, static in shape.

All objects of a batch lie in T rows (``image_index`` says whose they are), padded to a bucket size; dense (B, N)
padding would cost a multiple of the memory and time at large batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor


@dataclass(slots=True)
class Targets:
    """Packed objects of a batch.

    Attributes:
        image_index: (T,) int64, position of the object's image in the batch; 0 in padding rows.
        classes: (T,) int64 labels; 0 in padding rows.
        boxes: (T, 4) float32 xyxy pixels on the training canvas; 0 in padding rows.
        valid: (T,) bool, False in padding rows.
        masks: (T, S/4, S/32) uint8, the object's mask at a quarter of the canvas, eight pixels a byte, the leftmost in
            the highest bit; only of a task that learns masks, as the next two.
        keypoints: (T, K, 3) float32 x, y in pixels and 1 where the point is to be learned, else 0.
        rotated: (T, 5) float32 centre x, y, width, height in pixels and angle in radians, see ``ops.rotated``.
    """

    image_index: Tensor
    classes: Tensor
    boxes: Tensor
    valid: Tensor
    masks: Tensor | None = None
    keypoints: Tensor | None = None
    rotated: Tensor | None = None

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        """Copy to a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """Copy to page-locked memory."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Self:
        present = {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}
        return replace(self, **{name: change(tensor) for name, tensor in present.items()})


@dataclass(slots=True)
class Batch:
    """One batch.

    Attributes:
        images: (B, S, S, 3) uint8 RGB, as the workers write it.
        targets: packed objects.
        gains: (B, 3) float32 gains of hue, saturation, value that are still to be applied; all ones: none.
        indices: (B,) int64 positions of the images in the split; stays on the host, for messages.
    """

    images: Tensor
    targets: Targets
    gains: Tensor
    indices: Tensor

    def images_nchw(self) -> Tensor:
        """View the images as (B, 3, S, S) uint8 in channels_last memory, without a copy."""
        return self.images.permute(0, 3, 1, 2)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        """Copy everything but ``indices`` to a device."""
        return replace(
            self,
            images=self.images.to(device, non_blocking=non_blocking),
            targets=self.targets.to(device, non_blocking=non_blocking),
            gains=self.gains.to(device, non_blocking=non_blocking),
        )

    def pin_memory(self) -> Self:
        """Copy everything but ``indices`` to page-locked memory; the loader calls it by name."""
        return replace(
            self,
            images=self.images.pin_memory(),
            targets=self.targets.pin_memory(),
            gains=self.gains.pin_memory(),
        )
