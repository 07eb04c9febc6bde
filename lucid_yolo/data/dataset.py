"""Splits as data sets: what a loader's worker asks for samples."""

from __future__ import annotations

from collections.abc import Sequence

from torch.utils.data import Dataset

from lucid_yolo.config.schema import DataConfig
from lucid_yolo.data.augment import draw_plan, is_closed, sample_generator
from lucid_yolo.data.collate import ValItem
from lucid_yolo.data.colour import ColourHere, ColourStage
from lucid_yolo.data.geometry import letterboxed
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.sample import Renderer, Sample, learnable
from lucid_yolo.data.source import ImageSource, Pictures, PictureSource
from lucid_yolo.data.transforms import Transforms

SampleKey = tuple[int, int]
"""(epoch, position in the split). The epoch travels with the request, so workers that outlive an epoch follow it."""


class TrainDataset(Dataset[Sample]):
    """Augmented training samples, a pure function of (seed, epoch, image).

    Args:
        index: the split.
        config: canvas size and augmentation.
        seed: of all draws.
        max_epochs: planned length of the run; the last epochs close the mosaic.
        pictures: where pictures at training resolution come from; default: the files.
        colour: where colours are changed; default: here.

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
        pictures: Pictures | None = None,
        colour: ColourStage | None = None,
    ) -> None:
        self._index = index
        self._augment = config.augment
        self._seed = seed
        self._max_epochs = max_epochs
        self._source = pictures or PictureSource(index, config)
        self._render = Renderer(
            learnable(index), config.image_size, Transforms(config.augment.transforms), colour or ColourHere()
        )

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, key: SampleKey) -> Sample:
        """Make one sample."""
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: Sequence[SampleKey]) -> list[Sample]:
        """Make the samples of a batch; each image is decoded at most once.

        Raises:
            DataError: a file cannot be used and the configuration says to stop.
        """
        plans = [
            draw_plan(
                sample_generator(self._seed, epoch, image),
                image,
                num_images=len(self._index),
                augment=self._augment,
                closed=is_closed(epoch, max_epochs=self._max_epochs, close_mosaic=self._augment.close_mosaic),
            )
            for epoch, image in keys
        ]
        return self._render(plans, self._source)


class ValDataset(Dataset[ValItem]):
    """Letterboxed pictures.

    Args:
        index: the split.
        config: canvas size.
        images: where decoded images come from; default: the files.
    """

    def __init__(self, index: SplitIndex, config: DataConfig, *, images: ImageSource | None = None) -> None:
        self._index = index
        self._image_size = config.image_size
        self._source = PictureSource(index, config, images)

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, image: int) -> ValItem:
        """Letterbox one picture.

        Raises:
            DataError: the file cannot be used and the configuration says to stop.
        """
        picture = self._source.original(image)
        canvas, box = letterboxed(picture.pixels, self._image_size)
        return ValItem(canvas, box, image, picture.problem)
