"""What is random about a training sample, drawn before any picture is read.

Every sample has a generator of its own, made from (seed, epoch, image): it does not matter which worker renders it,
or in which order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.config.schema import AugmentConfig

MIXUP_BETA = 32.0
"""Both parameters of the Beta distribution of the mixing share (arXiv 1710.09412): shares near one half."""


@dataclass(frozen=True, slots=True)
class Placement:
    """How one canvas is filled. Lengths are in canvas sides.

    Attributes:
        images: one image, or the four of a mosaic: upper left, upper right, lower left, lower right.
        meet: (x, y) where the four meet, on a field of 2 x 2 canvases; 0.5 to 1.5.
        scale: above 1 enlarges.
        degrees: rotation, +x toward +y.
        shear: (x, y) degrees.
        shift: (x, y) movement of the window's content.
        flip_lr: mirrored left to right.
        flip_ud: mirrored upside down.
    """

    images: tuple[int, ...]
    meet: tuple[float, float]
    scale: float
    degrees: float
    shear: tuple[float, float]
    shift: tuple[float, float]
    flip_lr: bool
    flip_ud: bool


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """All random choices of one training sample.

    Attributes:
        placements: one canvas, or the two that mixup blends.
        share: of the first canvas in the blend; 1 without mixup.
        gains: (3,) float32 colour gains of hue, saturation, value.
        transforms_seed: seeds the listed Albumentations transforms.
    """

    placements: tuple[Placement, ...]
    share: float
    gains: NDArray[np.float32]
    transforms_seed: int


def is_closed(epoch: int, *, max_epochs: int, close_mosaic: int) -> bool:
    """Whether an epoch belongs to the last ones, which see whole pictures only: no mosaic, no mixup."""
    return epoch >= max_epochs - close_mosaic


def sample_generator(seed: int, epoch: int, image: int) -> np.random.Generator:
    """Return the random stream of one sample."""
    return np.random.default_rng((seed, epoch, image))


def draw_plan(
    generator: np.random.Generator, image: int, *, num_images: int, augment: AugmentConfig, closed: bool
) -> SamplePlan:
    """Draw a training sample.

    Args:
        generator: the sample's own.
        image: position in the split.
        num_images: size of the split; mosaic and mixup partners are uniform over it.
        augment: probabilities and ranges.
        closed: see `is_closed`.
    """
    mixed = not closed and generator.random() < augment.mixup
    placements = [draw_placement(generator, image, num_images=num_images, augment=augment, closed=closed)]
    share = 1.0
    if mixed:
        partner = int(generator.integers(num_images))
        placements.append(draw_placement(generator, partner, num_images=num_images, augment=augment, closed=closed))
        share = float(generator.beta(MIXUP_BETA, MIXUP_BETA))
    ranges = np.array([augment.hsv_h, augment.hsv_s, augment.hsv_v])
    gains = (1 + generator.uniform(-1, 1, 3) * ranges).astype(np.float32)
    return SamplePlan(tuple(placements), share, gains, int(generator.integers(2**32)))


def draw_placement(
    generator: np.random.Generator, image: int, *, num_images: int, augment: AugmentConfig, closed: bool
) -> Placement:
    """Draw one canvas; see `draw_plan`."""
    images: tuple[int, ...] = (image,)
    if not closed and generator.random() < augment.mosaic:
        images = (image, *generator.integers(num_images, size=3).tolist())
    meet_x, meet_y = generator.uniform(0.5, 1.5, 2).tolist()
    scale, degrees, shear_x, shear_y, shift_x, shift_y = generator.uniform(-1, 1, 6).tolist()
    flip_lr, flip_ud = generator.random(2).tolist()
    return Placement(
        images=images,
        meet=(meet_x, meet_y),
        scale=1 + scale * augment.scale,
        degrees=degrees * augment.degrees,
        shear=(shear_x * augment.shear, shear_y * augment.shear),
        shift=(shift_x * augment.translate, shift_y * augment.translate),
        flip_lr=flip_lr < augment.flip_lr,
        flip_ud=flip_ud < augment.flip_ud,
    )
