"""One contiguous, read-only block of pictures that all processes of a host share.

The block is a file: anonymous memory, or a file on disk. What travels between processes is its path; each process maps
it when it first reads. So there is one copy under fork, spawn and forkserver, and a pickled data set stays small.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.config.errors import RunError

_AHEAD = 256  # pictures handed to the threads at once: an error or Ctrl-C waits for no more than these


class HeldFile:
    """An open file that stays open for as long as this object lives.

    Args:
        descriptor: of the open file; belongs to this object from now on.
        path: by which every process of the user can open it.
    """

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor = descriptor
        self.path = path
        self._close = weakref.finalize(self, os.close, descriptor)


def memory_file() -> HeldFile:
    """Make an empty file of anonymous memory (Linux).

    It needs no /dev/shm, and the kernel frees it when the last process that uses it is gone, however that ends.
    """
    descriptor = os.memfd_create("lucid-yolo-arena")
    return HeldFile(descriptor, f"/proc/{os.getpid()}/fd/{descriptor}")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each picture of a block lies.

    Attributes:
        shapes: (N, 2) int64 height and width.
        offsets: (N + 1,) int64 first byte of each picture; the last one is the size of the block.
    """

    shapes: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """Size of the block."""
        return int(self.offsets[-1])


def layout(shapes: NDArray[np.int64]) -> Layout:
    """Lay pictures out one after the other, three bytes a pixel.

    Args:
        shapes: (N, 2) height and width.
    """
    return Layout(shapes, np.concatenate([[0], np.cumsum(3 * shapes.prod(axis=1))]).astype(np.int64))


class Arena:
    """Pictures of a block, mapped at the first read in each process.

    Args:
        path: file of the block.
        offsets: (N + 1,) int64, see `Layout`.
        shapes: (N, 2) int64 height and width.
        held: keeps the file alive in the process that made it; stays there when the arena is sent to another one.
    """

    def __init__(
        self, path: str, offsets: NDArray[np.int64], shapes: NDArray[np.int64], held: HeldFile | None = None
    ) -> None:
        self.path = path
        self._offsets = offsets
        self._shapes = shapes
        self._held = held
        self._block: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self._shapes)

    @property
    def nbytes(self) -> int:
        """Size of the block."""
        return int(self._offsets[-1])

    def __getitem__(self, image: int) -> NDArray[np.uint8]:
        """Return one picture: a (H, W, 3) uint8 view that cannot be written to.

        Raises:
            RunError: the file of the block is gone.
        """
        if self._block is None:
            self._block = self._map()
        height, width = self._shapes[image].tolist()
        view: NDArray[np.uint8] = self._block[self._offsets[image] : self._offsets[image + 1]].reshape(height, width, 3)
        return view

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_block": None, "_held": None}

    def _map(self) -> NDArray[np.uint8]:
        try:
            with open(self.path, "rb") as file:
                return np.frombuffer(mmap.mmap(file.fileno(), self.nbytes, access=mmap.ACCESS_READ), np.uint8)
        except (OSError, ValueError) as error:
            raise RunError(
                f"the cache of training pictures, {self.path}, cannot be read ({error}): its file was removed, or the "
                "process that made it is gone. Start the run again."
            ) from None


def fill(
    descriptor: int,
    place: Layout,
    load: Callable[[int], NDArray[np.uint8] | None],
    *,
    threads: int,
    advance: Callable[[int], None],
) -> None:
    """Write the pictures of a block.

    Args:
        descriptor: file that is open for writing.
        place: where each picture goes.
        load: makes one picture; None leaves its place empty. Called from several threads.
        threads: how many (decoding leaves Python's lock).
        advance: told how many pictures have been done since it was last told.
    """

    def work(image: int) -> None:
        pixels = load(image)
        if pixels is not None:
            assert pixels.shape == (*place.shapes[image], 3), (pixels.shape, place.shapes[image])
            _write(descriptor, np.ascontiguousarray(pixels).data.cast("B"), int(place.offsets[image]))

    os.truncate(descriptor, place.nbytes)
    count = len(place.shapes)
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, count, _AHEAD):
            images = range(start, min(start + _AHEAD, count))
            for _ in pool.map(work, images):
                advance(1)


def _write(descriptor: int, data: memoryview, offset: int) -> None:
    while len(data):
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written
