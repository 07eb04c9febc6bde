"""What the machine has. ``describe_machine`` is the only place that reads hardware facts; rules look at its record.

torch is imported only where the answer needs it: a run on the processor is planned without it.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import platform
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from lucid_yolo.config.paths import cache_directory
from lucid_yolo.config.schema import RootConfig
from lucid_yolo.perf.cgroup import CgroupLimits, read_limits


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDevice:
    """One CUDA device.

    Attributes:
        name: as the driver states it.
        capability: compute capability, major and minor.
        memory: bytes.
        bf16: whether it computes in bfloat16 natively (capability 8.0 or newer).
    """

    name: str
    capability: tuple[int, int]
    memory: int
    bf16: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine that a run will use.

    Attributes:
        os: operating system, as ``platform.system()`` names it.
        accelerator: what the run computes on: cpu, cuda or mps.
        accelerator_reason: why that one.
        accelerators: what is present.
        cuda_devices: visible CUDA devices; empty when the run asks for another accelerator.
        torch_version: full version of torch.
        triton: whether Triton can be imported.
        host_compiler: C compiler that Triton would call, None where there is none.
        memory_available: bytes that this process can still take, within the container's limit.
        cores: processor cores that this process may use, affinity and the container's quota applied.
        shm_free: free bytes of /dev/shm, None where there is none.
        cache_disk_free: free bytes of the disk that holds the user's cache directory.
        start_method: how worker processes start.
    """

    os: str
    accelerator: str
    accelerator_reason: str
    accelerators: tuple[str, ...]
    cuda_devices: tuple[CudaDevice, ...]
    torch_version: str
    triton: bool
    host_compiler: str | None
    memory_available: int
    cores: int
    shm_free: int | None
    cache_disk_free: int
    start_method: str

    @property
    def device_name(self) -> str:
        """What the run computes on, in words."""
        return self.cuda_devices[0].name if self.accelerator == "cuda" else self.accelerator

    @property
    def accelerator_names(self) -> str:
        """What is present, for a sentence: ``cpu and cuda``."""
        return " and ".join(self.accelerators)

    def has_torch(self, *release: int) -> bool:
        """Whether torch is at least that final release: 2.9.0a0, dev and rc builds are older than 2.9."""
        return not is_older_than(self.torch_version, release)

    def as_dict(self) -> dict[str, Any]:
        """Plain containers, ready for JSON."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of ``as_dict``."""
        devices = tuple(CudaDevice(**{**d, "capability": tuple(d["capability"])}) for d in values["cuda_devices"])
        return cls(**{**values, "cuda_devices": devices, "accelerators": tuple(values["accelerators"])})


def describe_machine(config: RootConfig) -> Machine:
    """Read what this machine has.

    Args:
        config: says which accelerator is asked for, and so what has to be looked at.

    Returns:
        the facts that rules decide on.
    """
    requested = config.trainer.accelerator
    # Only cuda, mps and auto need torch to look; a request for cpu stays quick.
    present = ("cpu",) if requested == "cpu" else find_accelerators()
    accelerator, reason = choose_accelerator(requested, present)
    limits = read_limits()
    return Machine(
        os=platform.system(),
        accelerator=accelerator,
        accelerator_reason=reason,
        accelerators=present,
        cuda_devices=_cuda_devices() if "cuda" in present else (),
        torch_version=version("torch"),
        triton=find_spec("triton") is not None,
        host_compiler=next((path for name in _compilers() if (path := shutil.which(name))), None),
        memory_available=_memory_available(limits),
        cores=usable_cores(_affinity(), limits.cpu_quota),
        shm_free=shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else None,
        cache_disk_free=_disk_free(cache_directory()),
        start_method=multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0],
    )


def find_accelerators() -> tuple[str, ...]:
    """What torch can compute on here: cpu, and cuda and mps where they are present."""
    import torch  # noqa: PLC0415

    found = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return tuple(name for name, there in found.items() if there)


def choose_accelerator(requested: str, present: tuple[str, ...]) -> tuple[str, str]:
    """Choose what the run computes on.

    Args:
        requested: auto, cpu, cuda or mps.
        present: what the machine has.

    Returns:
        the accelerator and the reason. One that is not present is replaced by cpu here; a rule refuses the run.
    """
    if requested in present:
        return requested, "requested"
    if requested != "auto":
        return "cpu", f"{requested} was requested and is not present"
    for name, words in (("cuda", "a CUDA device is present"), ("mps", "no CUDA device, MPS is present")):
        if name in present:
            return name, words
    return "cpu", "no CUDA device and no MPS"


def is_older_than(version_text: str, release: tuple[int, ...]) -> bool:
    """Whether a version of torch is older than a final release, pre-releases of that release included.

    Args:
        version_text: such as ``2.9.0a0+git1234`` or ``2.13.0+cpu``.
        release: such as ``(2, 9)``.
    """
    match = re.match(r"(\d+(?:\.\d+)*)[.-]?(a|b|rc|dev)?", version_text)
    assert match is not None, version_text
    found = tuple(int(part) for part in match[1].split("."))
    size = max(len(found), len(release))
    padded_found, padded_release = (numbers + (0,) * (size - len(numbers)) for numbers in (found, release))
    return padded_found < padded_release or (padded_found == padded_release and match[2] is not None)


def usable_cores(affinity: int, quota: float | None) -> int:
    """Whole cores that this process may use: what the scheduler allows and the quota pays for, at least one."""
    return affinity if quota is None else max(1, min(affinity, math.floor(quota)))


def _disk_free(folder: Path) -> int:
    """Free bytes of the disk that holds a folder, or would hold it."""
    return shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.is_dir())).free


def _affinity() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _compilers() -> tuple[str, ...]:
    return tuple(name for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name)


def _memory_available(limits: CgroupLimits) -> int:
    """Bytes that can still be taken: the kernel's estimate, or half of what is installed where there is none."""
    free = _meminfo_available(Path("/proc/meminfo"))
    if free is None:
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return free if limits.memory_free is None else min(free, limits.memory_free)


def _meminfo_available(path: Path) -> int | None:
    if not path.exists():
        return None
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", path.read_text(encoding="ascii"), re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _cuda_devices() -> tuple[CudaDevice, ...]:
    import torch  # noqa: PLC0415

    found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return tuple(
        CudaDevice(name=p.name, capability=(p.major, p.minor), memory=p.total_memory, bf16=p.major >= 8) for p in found
    )


@cache
def count_multiprocessors(index: int) -> int:
    """Multiprocessors of a CUDA device, for kernels that share work out among them."""
    import torch  # noqa: PLC0415

    found: int = torch.cuda.get_device_properties(index).multi_processor_count
    return found


def _plain(value: Any) -> Any:
    """Tuples as lists, at any depth, so that a record equals itself after JSON."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
