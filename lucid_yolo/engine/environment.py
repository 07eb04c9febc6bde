"""Process-wide settings of a fit, put back afterwards (a notebook goes on living)."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def numeric_settings(*, deterministic: str, cuda: bool) -> Iterator[None]:
    """Set determinism and matrix precision.

    Args:
        deterministic: "strict", "warn-only" or "off".
        cuda: whether the fit runs on CUDA: TF32 is allowed there for float32 matrix products.
    """
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    was_warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    was_fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    was_precision = torch.get_float32_matmul_precision()
    was_benchmark = torch.backends.cudnn.benchmark
    lightning_log = logging.getLogger("lightning.pytorch")
    was_level = lightning_log.level
    lightning_log.setLevel(logging.WARNING)  # the plan and the console say what matters
    if deterministic != "off":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts
    torch.use_deterministic_algorithms(deterministic != "off", warn_only=deterministic == "warn-only")
    # Filling every fresh buffer costs kernels at each step and guards only against reading unwritten memory.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False  # its search costs 18 to 31 s at the first step
    if cuda:
        torch.set_float32_matmul_precision("high")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*does not have many workers.*")
            warnings.filterwarnings("ignore", message=".*dataloader is not resumable.*")
            warnings.filterwarnings("ignore", message=".*in eval mode at the start of training.*")  # the average is
            warnings.filterwarnings("ignore", message=".*treespec, LeafSpec.*")
            yield
    finally:
        torch.use_deterministic_algorithms(was_deterministic, warn_only=was_warn_only)
        torch.utils.deterministic.fill_uninitialized_memory = was_fill  # type: ignore[attr-defined]
        torch.set_float32_matmul_precision(was_precision)
        torch.backends.cudnn.benchmark = was_benchmark
        lightning_log.setLevel(was_level)
