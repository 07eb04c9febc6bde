"""Machines that were never built, for rules that no test machine would meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lucid_yolo.config.schema import (
    CacheName,
    CachePlace,
    CompileName,
    DepthwiseName,
    HsvName,
    KernelsName,
    MuSGDConfig,
    OnUnmet,
    OptimizerConfig,
    PrecisionName,
    PrefetchName,
    RootConfig,
)
from lucid_yolo.perf.machine import CudaDevice, Machine

GIB = 1024**3

CPU = Machine(
    os="Linux",
    accelerator="cpu",
    accelerator_reason="no CUDA device and no MPS",
    accelerators=("cpu",),
    cuda_devices=(),
    torch_version="2.13.0+cpu",
    triton=True,
    host_compiler="cc",
    memory_available=16 * GIB,
    cores=4,
    shm_free=8 * GIB,
    cache_disk_free=100 * GIB,
    start_method="fork",
)
H200 = CudaDevice(name="NVIDIA H200", capability=(9, 0), memory=141 * GIB, bf16=True)
T4 = CudaDevice(name="Tesla T4", capability=(7, 5), memory=15 * GIB, bf16=False)
CUDA = replace(
    CPU,
    accelerator="cuda",
    accelerator_reason="a CUDA device is present",
    accelerators=("cpu", "cuda"),
    cuda_devices=(H200,),
    torch_version="2.13.0",
)
OLD_CUDA = replace(CUDA, cuda_devices=(T4,))
MPS = replace(
    CPU,
    os="Darwin",
    accelerator="mps",
    accelerator_reason="no CUDA device, MPS is present",
    accelerators=("cpu", "mps"),
    shm_free=None,
    start_method="spawn",
)


CACHE_BYTES = {CacheName.NONE: 0, CacheName.DECODED: 3 * GIB, CacheName.PREPARED: GIB}
"""What caches of a made-up split take."""


def make_config(
    *,
    precision: PrecisionName = PrecisionName.AUTO,
    accelerator: str = "auto",
    devices: int = 1,
    deterministic: bool = True,
    on_unmet: OnUnmet = OnUnmet.FALLBACK,
    cache: CacheName = CacheName.NONE,
    place: CachePlace = CachePlace.MEMORY,
    task: str = "detect",
    capture: Sequence[str] = (),
    compile: CompileName = CompileName.NONE,
    optimizer: OptimizerConfig | None = None,
    clip_norm: float | None = 10.0,
    hsv: HsvName = HsvName.WORKER,
    kernels: KernelsName = KernelsName.STOCK,
    depthwise: DepthwiseName = DepthwiseName.AUTO,
    prefetch: PrefetchName = PrefetchName.NONE,
    num_workers: int | None = None,
    max_steps: int | None = None,
    max_epochs: int = 100,
    accumulate: int = 1,
) -> RootConfig:
    """A configuration with what the rules look at."""
    config = RootConfig(on_unmet=on_unmet)
    config.task.name = task
    config.precision.name = precision
    config.trainer.max_epochs = max_epochs
    config.trainer.accumulate = accumulate
    config.trainer.accelerator = accelerator
    config.trainer.devices = devices
    config.trainer.deterministic = deterministic
    config.cache.selected = cache
    config.cache.place = place
    config.optimizer = MuSGDConfig(name="musgd", lr=0.01) if optimizer is None else optimizer
    config.trainer.clip_norm = clip_norm
    for region in capture:
        getattr(config.capture, region).selected = True
    config.compile.selected = compile
    config.hsv.selected = hsv
    config.kernels.selected = kernels
    config.depthwise.selected = depthwise
    config.prefetch.selected = prefetch
    config.data.num_workers = num_workers
    config.trainer.max_steps = max_steps
    return config
