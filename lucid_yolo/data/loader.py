"""Loaders: one queue of batches for a whole fit, cut into epochs; what fails in a worker becomes one sentence."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from lucid_yolo.config.errors import DataError, RunError
from lucid_yolo.config.schema import DataConfig, PrefetchName
from lucid_yolo.data.batch import Batch
from lucid_yolo.data.collate import ValBatch, collate, collate_val
from lucid_yolo.data.colour import ColourStage
from lucid_yolo.data.dataset import SampleKey, TrainDataset, ValDataset
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.queues import BatchQueue, make_queue
from lucid_yolo.data.source import ImageSource, Pictures
from lucid_yolo.data.statistics import target_rows
from lucid_yolo.data.workers import PREFETCH, start_worker

__all__ = ["TrainLoader", "ValBatch", "ValLoader"]

AnyBatch = TypeVar("AnyBatch", Batch, ValBatch)


@dataclass(slots=True)
class Fetched(Generic[AnyBatch]):
    """What a worker hands over.

    Attributes:
        batch: None after a failure.
        failure: message of the `DataError` that stopped it.
        problems: one sentence for each file that a blank stands in for.
    """

    batch: AnyBatch | None
    failure: str | None = None
    problems: tuple[str, ...] = ()

    def pin_memory(self) -> Self:
        """Pin the batch; the loader calls it by name."""
        return self if self.batch is None else replace(self, batch=self.batch.pin_memory())


class TrainFetcher(Dataset[Fetched[Batch]]):
    """Makes whole training batches; errors become messages, which survive the way between processes."""

    def __init__(self, dataset: TrainDataset, rows: int) -> None:
        self._dataset = dataset
        self._rows = rows

    def __getitems__(self, keys: Sequence[SampleKey]) -> Fetched[Batch]:
        """Make one batch."""
        try:
            samples = self._dataset.__getitems__(keys)
        except DataError as error:
            return Fetched(None, failure=str(error))
        problems = tuple(problem for sample in samples for problem in sample.problems)
        return Fetched(collate(samples, rows=self._rows), problems=problems)


class ValFetcher(Dataset[Fetched[ValBatch]]):
    """Makes whole validation batches; see `TrainFetcher`."""

    def __init__(self, dataset: ValDataset, batch_size: int) -> None:
        self._dataset = dataset
        self._batch_size = batch_size

    def __getitems__(self, images: Sequence[int]) -> Fetched[ValBatch]:
        """Make one batch."""
        try:
            items = [self._dataset[image] for image in images]
        except DataError as error:
            return Fetched(None, failure=str(error))
        problems = tuple(item.problem for item in items if item.problem is not None)
        return Fetched(collate_val(items, batch_size=self._batch_size), problems=problems)


class Receiver:
    """The main process' end: raises what went wrong in a worker, and names each unusable file once.

    Args:
        instead: what happens instead of using such a file, for the warning.
    """

    def __init__(self, instead: str) -> None:
        self._instead = instead
        self._named: set[str] = set()

    def take(self, stream: Iterator[Fetched[AnyBatch]]) -> AnyBatch:
        """Wait for the next batch.

        Raises:
            DataError: a file cannot be used.
            RunError: a worker process died.
            StopIteration: the queue is at its end.
        """
        try:
            fetched = next(stream)
        except (RuntimeError, ConnectionError, EOFError) as error:  # the latter: while it handed over a batch
            if isinstance(error, RuntimeError) and "DataLoader worker" not in str(error):
                raise
            raise RunError(
                f"a loader worker died: {_first_line(error)}. Most often memory or shared memory (/dev/shm) ran out; "
                "fewer data.num_workers or a smaller data.batch_size needs less"
            ) from error
        for problem in fetched.problems:
            if problem not in self._named:
                self._named.add(problem)
                warnings.warn(f"{problem}; {self._instead}", stacklevel=3)
        if fetched.batch is None:
            raise DataError(fetched.failure)
        return fetched.batch


class TrainLoader:
    """Training batches; every ``iter()`` is one epoch, and the next one follows by itself.

    Args:
        index: training split.
        config: batch size, canvas size, augmentation.
        seed: of order and augmentation.
        max_epochs: planned length of the run.
        num_workers: processes; 0 prepares batches in this one. Workers live until `close`.
        pin_memory: hand over page-locked batches, for copies to a CUDA device.
        rows: target rows of a usual batch; chosen from the label statistics unless given.
        multiprocessing_context: "fork", "spawn", "forkserver" or None for the platform's own.
        pictures: where pictures at training resolution come from; default: the files.
        colour: where colours are changed; default: in the workers.
        prefetch: whether workers go on to the next epoch by themselves.

    Attributes:
        rows: target rows of a usual batch.
        wait_seconds: time spent waiting for batches since the loader was made.
        first_waits: part of it that each epoch's first batch took, for every epoch that was begun.

    Raises:
        ConfigError: the listed transforms cannot be built.
    """

    def __init__(
        self,
        index: SplitIndex,
        config: DataConfig,
        *,
        seed: int,
        max_epochs: int,
        num_workers: int,
        pin_memory: bool,
        rows: int | None = None,
        multiprocessing_context: str | None = None,
        pictures: Pictures | None = None,
        colour: ColourStage | None = None,
        prefetch: PrefetchName = PrefetchName.NONE,
    ) -> None:
        self.rows = target_rows(index, config) if rows is None else rows
        self.wait_seconds = 0.0
        self._receiver = Receiver("a blank picture without objects stands in for it")
        self.first_waits: list[float] = []
        self._queue = make_queue(prefetch, len(index), config.batch_size, seed=seed, max_epochs=max_epochs)
        self._last_epoch = -1  # of the stream
        self._stream: Iterator[Fetched[Batch]] | None = None  # batches that follow the position
        self._delivered = 0
        dataset = TrainDataset(index, config, seed=seed, max_epochs=max_epochs, pictures=pictures, colour=colour)
        self._loader: DataLoader[Any] = _worker_pool(
            TrainFetcher(dataset, self.rows),
            self._queue,
            num_workers=num_workers,
            pin_memory=pin_memory,
            multiprocessing_context=multiprocessing_context,
        )

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return len(self._queue)

    def start_at(self, epoch: int, batch: int) -> None:
        """Set where the next ``iter()`` begins.

        Args:
            epoch: from 0.
            batch: from 0 to ``len(self) - 1``; the rest of that epoch follows.
        """
        if epoch < 0 or not 0 <= batch < len(self):
            raise ValueError(f"epoch {epoch}, batch {batch} is not a position: an epoch has {len(self)} batches")
        self._move_to(epoch, batch)
        self._stream = None

    def __iter__(self) -> Iterator[Batch]:
        if self._delivered:  # the last epoch was left early
            self.start_at(self._queue.epoch + 1, 0)
        if self._stream is None:
            self._last_epoch = self._queue.last_epoch
            self._stream = iter(self._loader)
        return _Epoch(self, self._stream, left=len(self) - self._queue.batch)

    def close(self) -> None:
        """End the worker processes; a later ``iter()`` starts new ones."""
        self._stream = None
        _end_workers(self._loader)

    def _move_to(self, epoch: int, batch: int) -> None:
        self._queue.epoch, self._queue.batch = epoch, batch
        self._delivered = 0

    def _next(self, stream: Iterator[Fetched[Batch]], *, last: bool) -> Batch:
        """Wait for a batch. With the last one the position moves on at once: who counts batches never asks again."""
        self._stream = None  # an error ends it
        start = time.perf_counter()
        batch = self._receiver.take(stream)
        waited = time.perf_counter() - start
        self.wait_seconds += waited
        if self._delivered == 0:
            self.first_waits.append(waited)
        if last:
            self._move_to(self._queue.epoch + 1, 0)
        else:
            self._delivered += 1
        if self._queue.epoch <= self._last_epoch:
            self._stream = stream
        return batch


class _Epoch(Iterator[Batch]):
    """The batches of one epoch that are left."""

    def __init__(self, loader: TrainLoader, stream: Iterator[Fetched[Batch]], *, left: int) -> None:
        self._loader = loader
        self._stream = stream
        self._left = left

    def __next__(self) -> Batch:
        if self._left == 0:
            raise StopIteration
        self._left -= 1
        return self._loader._next(self._stream, last=self._left == 0)


class ValLoader:
    """Letterboxed batches of a split, in order; the last one is filled, see `ValBatch`.

    Args:
        index: the split.
        config: batch and canvas size.
        num_workers: processes; 0 prepares batches in this one. Workers live until `close`.
        pin_memory: hand over page-locked batches.
        multiprocessing_context: "fork", "spawn", "forkserver" or None for the platform's own.
        images: where decoded images come from; default: the files.
    """

    def __init__(
        self,
        index: SplitIndex,
        config: DataConfig,
        *,
        num_workers: int,
        pin_memory: bool,
        multiprocessing_context: str | None = None,
        images: ImageSource | None = None,
    ) -> None:
        self._receiver = Receiver("its objects count as missed")
        batch_size = config.val_batch_size or config.batch_size
        numbers = list(range(len(index)))
        requests = [numbers[start : start + batch_size] for start in range(0, len(numbers), batch_size)]
        self._loader: DataLoader[Any] = _worker_pool(
            ValFetcher(ValDataset(index, config, images=images), batch_size),
            requests,
            num_workers=min(num_workers, len(requests)),
            pin_memory=pin_memory,
            multiprocessing_context=multiprocessing_context,
        )

    def __len__(self) -> int:
        """Batches of the split."""
        return len(self._loader)

    def __iter__(self) -> Iterator[ValBatch]:
        stream = iter(self._loader)
        for _ in range(len(self)):
            yield self._receiver.take(stream)

    def close(self) -> None:
        """End the worker processes; a later ``iter()`` starts new ones."""
        _end_workers(self._loader)


def _worker_pool(
    fetcher: TrainFetcher | ValFetcher,
    requests: BatchQueue | list[list[int]],
    *,
    num_workers: int,
    pin_memory: bool,
    multiprocessing_context: str | None,
) -> DataLoader[Any]:
    """Start the machinery that answers requests, in their order."""
    return DataLoader(
        fetcher,
        batch_sampler=requests,
        collate_fn=_as_is,
        num_workers=num_workers,
        pin_memory=pin_memory,
        worker_init_fn=start_worker,
        multiprocessing_context=multiprocessing_context if num_workers else None,
        prefetch_factor=PREFETCH if num_workers else None,
        persistent_workers=num_workers > 0,
        generator=torch.Generator(),  # else every epoch would draw from the run's own random state
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")


def _as_is(fetched: Any) -> Any:
    return fetched


def _end_workers(loader: DataLoader[Any]) -> None:
    iterator = loader._iterator
    loader._iterator = None
    if iterator is not None:
        try:
            iterator._shutdown_workers()  # type: ignore[attr-defined]
        except RuntimeError as error:
            # A worker that died is told wherever the signal is noticed; here it would hide what ended the fit.
            if "DataLoader worker" not in str(error):
                raise
