"""Which pictures make which batch: requests for workers, as (epoch, image) pairs.

So a fit can begin at any batch of any epoch, workers that outlive an epoch follow its number, and a seed gives the same
batches for any number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from lucid_yolo.config.schema import PrefetchName
from lucid_yolo.data.dataset import SampleKey


def epoch_order(seed: int, epoch: int, num_images: int) -> NDArray[np.int64]:
    """Order of the images in an epoch: a pure function of seed and epoch.

    Returns:
        (num_images,) permutation.
    """
    # The fourth word keeps this stream apart from those of the samples, (seed, epoch, image).
    return np.random.default_rng((seed, epoch, 0, 1)).permutation(num_images)


class BatchQueue(Sampler[list[SampleKey]]):
    """Requests for batches, from a start to the end of its epoch, whose last batch is filled by wrapping the order.

    Args:
        num_images: in the split.
        batch_size: images a batch.
        seed: of the order.
    """

    def __init__(self, num_images: int, *, batch_size: int, seed: int) -> None:
        self._num_images = num_images
        self._batch_size = batch_size
        self._seed = seed
        self.epoch = 0
        self.batch = 0

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return math.ceil(self._num_images / self._batch_size)

    @property
    def last_epoch(self) -> int:
        """The epoch at whose end the requests end."""
        return self.epoch

    def __iter__(self) -> Iterator[list[SampleKey]]:
        first = islice(self._requests(self.epoch), self.batch, None)
        others = (self._requests(epoch) for epoch in range(self.epoch + 1, self.last_epoch + 1))
        return chain(first, chain.from_iterable(others))

    def _requests(self, epoch: int) -> Iterator[list[SampleKey]]:
        order = epoch_order(self._seed, epoch, self._num_images)
        batches = np.resize(order, (len(self), self._batch_size)).tolist()
        return iter([[(epoch, image) for image in images] for images in batches])


class FitQueue(BatchQueue):
    """The same to the end of the fit: workers never run out of requests between two epochs.

    Args:
        num_images: in the split.
        batch_size: images a batch.
        seed: of the order.
        max_epochs: planned length of the fit.
    """

    def __init__(self, num_images: int, *, batch_size: int, seed: int, max_epochs: int) -> None:
        super().__init__(num_images, batch_size=batch_size, seed=seed)
        self._max_epochs = max_epochs

    @property
    def last_epoch(self) -> int:
        """The last one of the fit; one beyond it stands alone."""
        return max(self.epoch, self._max_epochs - 1)


def make_queue(prefetch: PrefetchName, num_images: int, batch_size: int, *, seed: int, max_epochs: int) -> BatchQueue:
    """Requests to the end of an epoch, or with ``prefetch=epoch`` to the end of the fit."""
    if prefetch is PrefetchName.EPOCH:
        return FitQueue(num_images, batch_size=batch_size, seed=seed, max_epochs=max_epochs)
    return BatchQueue(num_images, batch_size=batch_size, seed=seed)
