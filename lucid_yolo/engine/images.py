"""How the images of a run get their colours, and what the network reads: the workers' part and the device's part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lucid_yolo.config.schema import HsvName, OnUnmet
from lucid_yolo.data.batch import Batch
from lucid_yolo.data.colour import ColourHere, ColourLater, ColourStage
from lucid_yolo.ops import colour_torch
from lucid_yolo.ops.images import scale_images
from lucid_yolo.perf.colour import DeviceColour, FusedColour
from lucid_yolo.perf.plan import RunPlan, Scalar

COMPUTE_DTYPES = {"32-true": torch.float32, "bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
"""What the first convolution computes in, by precision."""


class ImagePreparation(Protocol):
    """From a batch on the device to what the network reads. Reads nothing on the host."""

    def __call__(self, batch: Batch) -> Tensor:
        """Return images (B, 3, S, S) in 0 .. 1."""
        ...

    def outcomes(self) -> Mapping[str, Mapping[str, Scalar]]:
        """What happened, by flag of the plan."""
        ...


@dataclass(frozen=True)
class ScaleImages:
    """Scales images whose colours the workers have changed.

    Attributes:
        memory_format: layout of the result.
    """

    memory_format: torch.memory_format

    def __call__(self, batch: Batch) -> Tensor:
        """Return float32 images."""
        return scale_images(batch.images_nchw(), memory_format=self.memory_format)

    def outcomes(self) -> Mapping[str, Mapping[str, Scalar]]:
        """Nothing worth telling."""
        return {}


class ColourImages:
    """Changes colours and scales, in torch.

    Args:
        dtype: of the result; equal to what a mixed precision would make of float32 images.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._work: DeviceColour = colour_torch.colour_and_scale
        self._calls = 0

    def __call__(self, batch: Batch) -> Tensor:
        """Return images in the compute dtype, channels_last."""
        self._calls += 1
        return self._work(batch.images_nchw(), batch.gains, dtype=self._dtype)

    def outcomes(self) -> Mapping[str, Mapping[str, Scalar]]:
        """How often it was called; replays of a recording call nothing."""
        return {"hsv": {"calls": self._calls}}


class FusedColourImages(ColourImages):
    """The same with the fused kernel, as long as that can be had.

    Args:
        dtype: of the result.
        on_unmet: what happens where it cannot.
    """

    def __init__(self, dtype: torch.dtype, on_unmet: OnUnmet) -> None:
        super().__init__(dtype)
        self._work = self._fused = FusedColour(on_unmet)

    def outcomes(self) -> Mapping[str, Mapping[str, Scalar]]:
        """How often it was called, and why the kernel was given up."""
        fused: dict[str, Scalar] = {"failure": self._fused.failure} if self._fused.failure else {"calls": self._calls}
        return {**super().outcomes(), "hsv.fused": fused}


@dataclass(frozen=True)
class ImagePath:
    """Who does what to the images.

    Attributes:
        workers: the last stage of a sample.
        device: the first stage of a step.
    """

    workers: ColourStage
    device: ImagePreparation


def choose_image_path(plan: RunPlan, on_unmet: OnUnmet) -> ImagePath:
    """Choose from what the plan has made active.

    Args:
        plan: of the run.
        on_unmet: what happens where the fused kernel cannot be had after all.
    """
    if plan["hsv"].active == HsvName.WORKER:
        channels_last = bool(plan["channels_last"].active)
        return ImagePath(ColourHere(), ScaleImages(torch.channels_last if channels_last else torch.contiguous_format))
    dtype = COMPUTE_DTYPES[str(plan["precision"].active)]
    device = FusedColourImages(dtype, on_unmet) if plan["hsv.fused"].active else ColourImages(dtype)
    return ImagePath(ColourLater(), device)
