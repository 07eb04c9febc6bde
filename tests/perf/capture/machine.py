"""Where recordings are tested: on a tape that needs no CUDA, and as CUDA graphs."""

from __future__ import annotations

from typing import Any

import torch

from lucid_yolo.perf.capture.tape import CudaTape, Tape
from tests.perf.capture.rig import Rig
from tests.perf.capture.tapes import OperatorTape


class Machine:
    """One of both."""

    def __init__(self, device: str) -> None:
        self.device = device

    def rig(self, workload: str = "detect", **settings: Any) -> Rig:
        return Rig(workload, device=self.device, **settings)

    def tape(self) -> Tape:
        return OperatorTape() if self.device == "cpu" else CudaTape(torch.device(self.device))
