"""Loss values of the last steps, kept on the device and read every few steps.

Reading a value of a running step makes the host wait for the device; a row a step in a device buffer costs one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class StepWindow:
    """Values of the steps since the last reading.

    Attributes:
        steps: number of steps.
        means: mean of each value over the steps.
        finite: whether every value was finite.
    """

    steps: int
    means: tuple[float, ...]
    finite: bool


class StepLog:
    """A ring of rows on the device.

    Args:
        capacity: steps between two readings.
        width: values a step.
        device: where the step runs.
    """

    def __init__(self, capacity: int, width: int, device: torch.device) -> None:
        self._rows = torch.zeros(capacity, width, device=device)
        self._used = 0

    @property
    def full(self) -> bool:
        """Whether the next step needs a reading first."""
        return self._used == len(self._rows)

    def __len__(self) -> int:
        return self._used

    def append(self, total: Tensor, parts: Tensor) -> None:
        """Keep a step's values.

        Args:
            total: 0-d loss.
            parts: (width - 1,) terms.
        """
        torch.cat((total.reshape(1), parts), out=self._rows[self._used])
        self._used += 1

    def read(self) -> StepWindow:
        """Read and forget the rows: the one host synchronisation of the loop."""
        rows = self._rows[: self._used].double()
        means = rows.mean(0).tolist()
        window = StepWindow(steps=self._used, means=tuple(means), finite=all(abs(v) < float("inf") for v in means))
        self._used = 0
        return window
