"""Which device an inference uses."""

from __future__ import annotations

import torch

from lucid_yolo.config.errors import ConfigError


def choose_device(accelerator: str) -> torch.device:
    """Turn a setting into a device; ``auto`` takes CUDA, then MPS, then the processor.

    Raises:
        ConfigError: that accelerator is not known or not present.
    """
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if accelerator == "auto":
        return torch.device(next(name for name, there in present.items() if there))
    if not present.get(accelerator, False):
        there = ", ".join(name for name, found in present.items() if found)
        raise ConfigError([f"accelerator={accelerator} is not there; this machine has {there} (auto picks one)."])
    return torch.device(accelerator)
