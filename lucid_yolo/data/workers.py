"""Worker processes of the loaders: how many, and how each starts."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from types import FrameType

import cv2
import torch

from lucid_yolo.data.batch import Targets
from lucid_yolo.data.empty import bytes_of

PREFETCH = 2
"""Batches that each worker keeps ready."""
_MOST = 8
_SHM_SHARE = 2  # half of what is free
_GIB = 1024**3
_BYTES_AN_IMAGE = 12 + 8


@dataclass(frozen=True, slots=True)
class WorkerChoice:
    """How many processes prepare batches.

    Attributes:
        count: 0 means the main process does it.
        warning: what is wrong with a count that the user named.
        note: why fewer than usual were chosen.
    """

    count: int
    warning: str | None = None
    note: str | None = None


def batch_bytes(*, batch_size: int, image_size: int, targets: Targets) -> int:
    """Shared memory that one batch takes on its way to the main process: images, targets, gains, indices.

    Args:
        batch_size: images.
        image_size: side of the canvas in pixels.
        targets: target rows of a usual batch, see ``empty_targets``.
    """
    return batch_size * (3 * image_size * image_size + _BYTES_AN_IMAGE) + bytes_of(targets)


def choose_num_workers(
    requested: int | None, *, cores: int, free_shm: int | None, batch_bytes: int, batches: int, prefetch: int = PREFETCH
) -> WorkerChoice:
    """Choose a worker count from cores, shared memory and the length of an epoch.

    One core is left to the main process. Batches in flight may take half of the free shared memory. A count that the
    user named is kept.

    Args:
        requested: count that the user named, or None.
        cores: usable by this process.
        free_shm: free bytes of shared memory, or None where there is no such limit.
        batch_bytes: of one batch, see `batch_bytes`.
        batches: in an epoch; more workers than batches would idle.
        prefetch: batches that each worker keeps ready.
    """
    fit = None if free_shm is None else free_shm // _SHM_SHARE // (prefetch * batch_bytes)
    if requested is not None:
        if fit is None or requested <= fit:
            return WorkerChoice(requested)
        need = _need(requested, prefetch, batch_bytes, free_shm)
        advice = (
            f"data.num_workers={fit} or a smaller batch fits" if fit else "data.num_workers=0 or a smaller batch fits"
        )
        return WorkerChoice(
            requested, warning=f"data.num_workers={requested} may run out of shared memory: {need}; {advice}"
        )
    wanted = max(0, min(cores - 1, _MOST, batches))
    if fit is None or wanted <= fit:
        return WorkerChoice(wanted)
    need = _need(wanted, prefetch, batch_bytes, free_shm)
    return WorkerChoice(fit, note=f"{fit} loader workers instead of {wanted}: {need}")


def start_worker(_worker: int) -> None:
    """Prepare a worker process: one thread each, and stopping left to the main process, which ends its workers.

    Ctrl-C and schedulers signal the whole group; a worker that died of it would keep the run from saving its state.
    """
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_at_the_second)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _end_at_the_second(number: int, _frame: FrameType | None) -> None:
    """Let one signal pass: the main process sends its own ones to a worker that does not end."""
    signal.signal(number, signal.SIG_DFL)


def _need(count: int, prefetch: int, batch_bytes: int, free_shm: int | None) -> str:
    free = 0 if free_shm is None else free_shm
    return (
        f"{count} workers x {prefetch} batches x {batch_bytes / 1024**2:.1f} MiB = "
        f"{count * prefetch * batch_bytes / _GIB:.2f} GiB, and half of the free shared memory (/dev/shm) is "
        f"{free / _SHM_SHARE / _GIB:.2f} GiB"
    )
