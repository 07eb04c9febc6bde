"""Which device an inference uses."""

from __future__ import annotations

import torch

from lucid_yolo.config.errors import ConfigError
from lucid_yolo.perf.machine import choose_accelerator, find_accelerators


def choose_device(accelerator: str) -> torch.device:
    """Turn a setting into a device; ``auto`` takes CUDA, then MPS, then the processor.

    Raises:
        ConfigError: that accelerator is not known or not present.
    """
    present = find_accelerators()
    if accelerator not in ("auto", *present):
        raise ConfigError([f"accelerator={accelerator} is not there; this machine has {', '.join(present)} (or auto)."])
    return torch.device(choose_accelerator(accelerator, present)[0])
