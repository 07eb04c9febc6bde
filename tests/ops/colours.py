"""Colours and gains at which implementations of the colour transform are compared, and what workers make of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from lucid_yolo.ops.colour import ColourTransform
from lucid_yolo.ops.images import scale_images

GAINS = np.array(
    [
        [1.013, 1.55, 0.72],
        [0.9871, 0.3, 1.4],
        [1.5, 0.5, 2.0],  # half a turn; products half-way between two levels
        [0.0, 1.7, 0.5],  # a turn backwards
        [1.0, 1.0, 0.9999999],  # nearly nothing is not nothing
        [1.0, 1.0, 1.0],
    ],
    np.float32,
)


def every_colour(planes: int = 32) -> Iterator[np.ndarray]:
    """All 2**24 colours, some values of red at a time: (planes * 256, 256, 3) uint8 each."""
    green, blue = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8), indexing="ij")
    for red in range(0, 256, planes):
        yield np.concatenate([np.stack([np.full_like(green, red + k), green, blue], axis=-1) for k in range(planes)])


def spread_colours(levels: int) -> np.ndarray:
    """Every combination of evenly spread levels, black and white, ties and all sectors of hue included.

    Returns:
        (levels ** 2, levels, 3) uint8.
    """
    steps = np.rint(np.linspace(0, 255, levels)).astype(np.uint8)
    return np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, levels, 3)


def as_batch(picture: np.ndarray, gains: np.ndarray) -> tuple[Tensor, Tensor]:
    """One picture at several gains: (B, 3, H, W) uint8 in channels_last memory, and (B, 3) float32."""
    images = np.repeat(picture[None], len(gains), axis=0)
    return torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(gains)


def from_workers(images: Tensor, gains: Tensor) -> Tensor:
    """What the network is given when the workers change colours: (B, 3, H, W) float32 in channels_last memory."""
    pictures = images.permute(0, 2, 3, 1).numpy().copy()
    transform = ColourTransform()
    for picture, gain in zip(pictures, gains.numpy(), strict=True):
        transform(picture, gain)
    return scale_images(torch.from_numpy(pictures).permute(0, 3, 1, 2), memory_format=torch.channels_last)
