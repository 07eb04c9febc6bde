"""Where a measurement was made: every record carries this."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from lucid_yolo.config.paths import conf_dir

PACKAGES = ("torch", "lightning", "hydra-core", "albumentations", "opencv-python-headless", "pycocotools", "numpy")
NOT_INSTALLED = "not installed"


def environment(device: torch.device) -> dict[str, Any]:
    """Device, driver, versions and commit of this process."""
    return {
        "device": device_name(device),
        "driver": driver_version(device),
        "versions": versions(),
        "commit": commit(),
        "cores": os.cpu_count(),
    }


def write_record(path: Path, values: Mapping[str, Any]) -> None:
    """Write a record as JSON, as a whole."""
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(partial, path)


def versions() -> dict[str, str]:
    """Versions of what computes."""
    found = {"python": platform.python_version()}
    for name in ("lucid-yolo-lab", *PACKAGES):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = NOT_INSTALLED
    found["torch"] = torch.__version__
    if torch.version.cuda is not None:
        found["cuda"] = torch.version.cuda
    return found


def commit() -> str | None:
    """Commit of the checkout that runs (``+`` behind it: with changes); None for an installed wheel.

    The environment variable LUCID_YOLO_COMMIT names it where the history did not come along.
    """
    if "LUCID_YOLO_COMMIT" in os.environ:
        return os.environ["LUCID_YOLO_COMMIT"]
    checkout = conf_dir().parent
    if not (checkout / ".git").exists():
        return None
    try:
        revision = _git(checkout, "rev-parse", "--short=12", "HEAD")
        changed = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return revision + ("+" if changed else "")


def _git(checkout: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()


def device_name(device: torch.device) -> str:
    """Name of the device for a record."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.processor() or platform.machine()}, {os.cpu_count()} cores)"


def driver_version(device: torch.device) -> str | None:
    """Version of the NVIDIA driver; None where there is none or it does not say."""
    if device.type != "cuda":
        return None
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.splitlines()[0].strip() or None
