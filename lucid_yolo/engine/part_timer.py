"""Times of clipping, and of the parts that an optimizer divides its update into."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from torch import Tensor

from lucid_yolo.engine.module import TrainingModule
from lucid_yolo.optim.flat import FlatGroup, FlatOptimizer
from lucid_yolo.perf.capture.recorder import GRADIENT_NORM, OPTIONS_OF_PARTS

Found = TypeVar("Found")


def timed(
    call: Callable[[], Found], name: str, *, wait: Callable[[], None], add: Callable[[str, float], None]
) -> Found:
    """Call a part, and tell how long it took.

    Args:
        call: the part.
        name: told with the seconds.
        wait: called before and after, so that the device's work may be in its time.
        add: told name and seconds.

    Returns:
        what the part returns.
    """
    wait()
    begun = time.perf_counter()
    found = call()
    wait()
    add(name, time.perf_counter() - begun)
    return found


class ClipTimer:
    """Times a module's clipping by the global norm, recorded or not.

    Args:
        module: gets it in the place of what clips now.
        wait: called before and after, so that the device's work may be in its time.
        add: told name and seconds: the option of ``capture`` that records it.
    """

    def __init__(self, module: TrainingModule, *, wait: Callable[[], None], add: Callable[[str, float], None]) -> None:
        self._module = module
        self._clip = module.clip
        self._wait = wait
        self._add = add
        module.clip = self

    def __call__(self, parameters: Sequence[Tensor], max_norm: float | None) -> Tensor:
        """Clip; see `lucid_yolo.optim.clip.clip_gradients`."""
        return timed(partial(self._clip, parameters, max_norm), GRADIENT_NORM, wait=self._wait, add=self._add)

    def close(self) -> None:
        """Leave the module as it was, unless something else was put there since."""
        if self._module.clip is self:
            self._module.clip = self._clip


class PartTimer:
    """Times an optimizer's parts around whatever runs them, recorded or not; a ``PartRunner``.

    Args:
        optimizer: gets it in the place of what runs its parts now.
        wait: called before and after each part, so that the device's work may be in its time.
        add: told name and seconds of a part: the option of ``capture`` that records it, or its own name.
    """

    def __init__(
        self, optimizer: FlatOptimizer, *, wait: Callable[[], None], add: Callable[[str, float], None]
    ) -> None:
        self._optimizer = optimizer
        self._own = vars(optimizer).get("run_part")
        self._run = optimizer.run_part
        self._wait = wait
        self._add = add
        optimizer.run_part = self

    def __call__(self, part: str, flat: FlatGroup, function: Callable[[FlatGroup], None]) -> None:
        """Run one part."""
        run = partial(self._run, part, flat, function)
        timed(run, OPTIONS_OF_PARTS.get(part, part), wait=self._wait, add=self._add)

    def close(self) -> None:
        """Leave the optimizer as it was, unless something else was put there since."""
        own = vars(self._optimizer)
        if own.get("run_part") is not self:
            return
        if self._own is None:
            del own["run_part"]
        else:
            own["run_part"] = self._own
