"""Where the colours of a sample are changed: here, or later on the device. The gains are drawn alike."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.ops.colour import ColourTransform


class ColourStage(Protocol):
    """The last stage of a sample."""

    def __call__(self, image: NDArray[np.uint8], gains: NDArray[np.float32]) -> NDArray[np.float32]:
        """Change the colours of an image in place, as far as that is done here.

        Args:
            image: (S, S, 3) uint8 RGB, contiguous.
            gains: (3,) float32 that were drawn for it.

        Returns:
            (3,) gains that are still to be applied; ones where nothing is left to do.
        """
        ...


class ColourHere:
    """Changes the colours."""

    def __init__(self) -> None:
        self._transform = ColourTransform()

    def __call__(self, image: NDArray[np.uint8], gains: NDArray[np.float32]) -> NDArray[np.float32]:
        """Apply the gains; see `ColourStage`."""
        self._transform(image, gains)
        return np.ones(3, np.float32)


class ColourLater:
    """Leaves the colours to the device."""

    def __call__(self, image: NDArray[np.uint8], gains: NDArray[np.float32]) -> NDArray[np.float32]:
        """Hand the gains on; see `ColourStage`."""
        return gains
