"""A look at a whole data set before a run: every label is read and every picture is decoded."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lucid_yolo.config.errors import ConfigError, DataError
from lucid_yolo.config.schema import BadImages, DataConfig, ExifOrientation
from lucid_yolo.config.tasks import KeypointsConfig
from lucid_yolo.data.image import image_header, read_image
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.keypoint_settings import configured
from lucid_yolo.data.labels.base import LabelKind
from lucid_yolo.data.readers import read_split
from lucid_yolo.data.readers.matching import class_mismatch, keypoint_mismatch, shared_images
from lucid_yolo.data.readers.problems import LabelError, counted
from lucid_yolo.data.readers.settings import SPLITS

_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_SHOWN_CLASSES = 30
_SHOWN_IMAGES = 10


@dataclass(frozen=True, slots=True)
class BadImage:
    """An image that cannot be decoded.

    Attributes:
        path: the file.
        reason: why, in one sentence that names the file.
    """

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitReport:
    """What a split holds.

    Attributes:
        name: "train" or "val".
        source: file or folder of the labels.
        class_names: one name a class.
        images: number of images.
        objects: number of objects without crowd regions.
        backgrounds: images without objects.
        crowd: crowd regions.
        class_counts: (C,) objects of each class.
        side_quantiles: (7,) square roots of the box areas in pixels of the picture, at 0, 5, 25, 50, 75, 95 and 100 %.
        objects_quantiles: (7,) objects an image without crowd regions, at the same shares.
        turned: images that the EXIF orientation shows with width and height exchanged.
        bad_images: images that cannot be decoded.
        notes: what the reader has to say.
    """

    name: str
    source: str
    class_names: tuple[str, ...]
    images: int
    objects: int
    backgrounds: int
    crowd: int
    class_counts: NDArray[np.int64]
    side_quantiles: NDArray[np.float64]
    objects_quantiles: NDArray[np.float64]
    turned: tuple[str, ...]
    bad_images: tuple[BadImage, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RefusedSplit:
    """A split whose labels cannot be used.

    Attributes:
        name: "train" or "val".
        bad_images: images that cannot be decoded, of those that were found.
    """

    name: str
    bad_images: tuple[BadImage, ...]


@dataclass(frozen=True, slots=True)
class DataReport:
    """What a data set holds and what is wrong with it.

    Attributes:
        splits: the splits that could be read.
        refused: the others.
        problems: what stops a run, each text with the number of problems that it tells: labels that cannot be
            used, splits that do not fit together.
        exif: the EXIF rule that was applied.
    """

    splits: tuple[SplitReport, ...]
    refused: tuple[RefusedSplit, ...]
    problems: dict[str, int]
    exif: ExifOrientation

    @property
    def ok(self) -> bool:
        """Whether a run can use all of it."""
        return not self.problems and not self._bad_images

    def render(self) -> RenderableType:
        """The report for a terminal."""
        parts: list[RenderableType] = []
        if self.splits:
            parts += [_overview(self.splits), _histogram(self.splits)]
        for split in self.splits:
            parts += [_line("yellow", f"{split.name}: {note}") for note in split.notes]
            if split.turned:
                parts.append(_line("yellow", _turned_sentence(split, self.exif)))
            parts += _damage(split)
        for refused in self.refused:
            parts += _damage(refused)
        parts += [_line("red", problem) for problem in self.problems]
        parts.append(_line("green", "No problems.") if self.ok else _line("red", self._verdict()))
        return Group(*parts)

    def _verdict(self) -> str:
        labels, bad = sum(self.problems.values()), self._bad_images
        parts = [f"{labels} of labels or splits"] if labels else []
        if bad:
            parts.append(f"{counted(bad, 'image')} that cannot be decoded (data.bad_images=skip trains without them)")
        return f"{counted(labels + bad, 'problem')}: {' and '.join(parts)}; no file was changed."

    @property
    def _bad_images(self) -> int:
        looked_at: tuple[SplitReport | RefusedSplit, ...] = (*self.splits, *self.refused)
        return sum(len(split.bad_images) for split in looked_at)


def check_data(
    config: DataConfig, labels: LabelKind = LabelKind.BOXES, keypoints: KeypointsConfig | None = None
) -> DataReport:
    """Read both splits and decode every image, also where the labels of a split cannot be used.

    Nothing of the data set stops the check: what would stop a run is in the report.

    Args:
        config: where it is.
        labels: what the task reads of an object beside its box and class.
        keypoints: what the task sets of key points; None: it has none.

    Raises:
        ConfigError: settings that the format does not have.
    """
    lenient = replace(config, bad_images=BadImages.SKIP)
    problems: dict[str, int] = {}
    indices: list[SplitIndex] = []
    refused: list[RefusedSplit] = []
    for split in SPLITS:
        try:
            indices.append(read_split(lenient, split, labels))
        except DataError as error:
            known = error if isinstance(error, LabelError) else LabelError(str(error))
            problems[str(error)] = known.count
            refused.append(RefusedSplit(split, _decode_all(known.images, config.exif_orientation)))
    if len(indices) == len(SPLITS):
        train, val = indices
        problems |= dict.fromkeys((*class_mismatch(train, val), *keypoint_mismatch(train, val)), 1)
        if keypoints is not None:
            problems |= dict.fromkeys(_unfit(train, keypoints, config), 1)
        indices[1] = replace(val, notes=val.notes + shared_images(train, val))
    reports = tuple(_report(index, config.exif_orientation) for index in indices)
    return DataReport(reports, tuple(refused), problems, config.exif_orientation)


def _unfit(train: SplitIndex, keypoints: KeypointsConfig, config: DataConfig) -> tuple[str, ...]:
    """What a run would say of its settings when it meets the key points."""
    if train.keypoints is None:
        return ()
    try:
        configured(train.keypoints, keypoints, config.augment)
    except ConfigError as error:
        return error.problems
    return ()


def _report(index: SplitIndex, exif: ExifOrientation) -> SplitReport:
    plain = ~index.crowd
    boxes = index.boxes[plain].astype(np.float64)
    sides = np.sqrt((boxes[:, 2:] - boxes[:, :2]).prod(axis=1))
    per_image = np.diff(index.offsets)
    learned = np.bincount(np.repeat(np.arange(len(index)), per_image)[plain], minlength=len(index))
    bad_images = _decode_all(index.paths, exif)
    damaged = {bad.path for bad in bad_images}
    whole = [path for path in index.paths if path not in damaged]
    return SplitReport(
        name=index.name,
        source=index.source,
        class_names=index.class_names,
        images=len(index),
        objects=int(plain.sum()),
        backgrounds=int((per_image == 0).sum()),
        crowd=index.num_crowds,
        class_counts=np.bincount(index.classes[plain], minlength=index.num_classes),
        side_quantiles=np.quantile(sides, _QUANTILES),
        objects_quantiles=np.quantile(learned, _QUANTILES),
        turned=tuple(path for path in whole if image_header(path).orientation >= 5),
        bad_images=bad_images,
        notes=index.notes,
    )


def _decode_all(paths: Sequence[str], exif: ExifOrientation) -> tuple[BadImage, ...]:
    def problem(path: str) -> BadImage | None:
        try:
            read_image(path, exif=exif)
        except DataError as error:
            return BadImage(path, str(error))
        return None

    with ThreadPoolExecutor() as pool:  # the decoder runs without the interpreter's lock
        return tuple(bad for bad in pool.map(problem, paths, chunksize=16) if bad is not None)


def _damage(split: SplitReport | RefusedSplit) -> list[RenderableType]:
    parts: list[RenderableType] = [
        _line("red", f"{split.name}: {bad.reason}") for bad in split.bad_images[:_SHOWN_IMAGES]
    ]
    if (rest := len(split.bad_images) - _SHOWN_IMAGES) > 0:
        parts.append(_line("red", f"{split.name}: {rest} more images cannot be decoded"))
    return parts


def _overview(splits: Sequence[SplitReport]) -> Table:
    table = Table(title="Data", title_justify="left")
    table.add_column("")
    for split in splits:
        table.add_column(split.name, justify="right")
    for label, field in (
        ("images", "images"),
        ("objects", "objects"),
        ("backgrounds (images without objects)", "backgrounds"),
        ("crowd regions", "crowd"),
    ):
        table.add_row(label, *(str(getattr(split, field)) for split in splits))
    table.add_row("images that cannot be decoded", *(str(len(split.bad_images)) for split in splits))
    table.add_row("box side in pixels: 5, 50, 95 %", *(_three(split.side_quantiles) for split in splits))
    table.add_row("objects an image: 5, 50, 95 %", *(_three(split.objects_quantiles) for split in splits))
    return table


def _three(quantiles: NDArray[np.float64]) -> str:
    return ", ".join(f"{quantiles[i]:.0f}" for i in (1, 3, 5))


def _histogram(splits: Sequence[SplitReport]) -> Table:
    """Objects a class, the most frequent ones of the first split first."""
    first = splits[0]
    table = Table(title="Objects a class", title_justify="left")
    table.add_column("label", justify="right")
    table.add_column("class")
    for split in splits:
        table.add_column(split.name, justify="right")
    order = np.argsort(-first.class_counts, kind="stable").tolist()
    for label in order[:_SHOWN_CLASSES]:
        counts = (str(s.class_counts[label]) if label < len(s.class_counts) else "-" for s in splits)
        table.add_row(str(label), Text(first.class_names[label]), *counts)
    if (rest := len(order) - _SHOWN_CLASSES) > 0:
        table.caption = f"and {counted(rest, 'class', 'classes')} more"
    return table


def _turned_sentence(split: SplitReport, exif: ExifOrientation) -> str:
    images = counted(len(split.turned), "image")
    return (
        f"{split.name}: {images} with an EXIF orientation that exchanges width and height; "
        f"data.exif_orientation={exif} holds for training, validation and prediction: {split.turned[0]}"
    )


def _line(style: str, text: str) -> Text:
    return Text(text, style=style)
