"""The verb ``predict``: pictures in, overlays, JSON and YOLO text out."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lucid_yolo.config.errors import ConfigError, DataError, RunError
from lucid_yolo.config.paths import resolve_user_path
from lucid_yolo.config.schema import ExifOrientation
from lucid_yolo.config.verbs import OVERLAP, PredictConfig, SaveConfig
from lucid_yolo.data.geometry import letterboxed
from lucid_yolo.data.image import read_image
from lucid_yolo.engine.checkpoint import TrainedModel, load_model
from lucid_yolo.engine.device import choose_device
from lucid_yolo.engine.sources import Source, list_sources
from lucid_yolo.eval.predictions_io import detection_records, output_stems, write_json, write_yolo, yolo_lines
from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.images import scale_images
from lucid_yolo.ops.merging import merge_windows
from lucid_yolo.ops.tiling import Window, windows


@dataclass(frozen=True, repr=False)
class Prediction:
    """What a model found in one picture.

    Attributes:
        name: file, or a made-up name for pixels from memory.
        pixels: (H, W, 3) uint8 RGB, as the model saw it before scaling (after the EXIF rule).
        detections: best first.
        class_names: one name a class.
        category_ids: the training data's own id of each class.
        skeleton: pairs of key points that a line joins in the overlay.
    """

    name: str
    pixels: NDArray[np.uint8]
    detections: Detections
    class_names: tuple[str, ...]
    category_ids: tuple[int, ...]
    skeleton: tuple[tuple[int, int], ...] = ()

    def __repr__(self) -> str:
        height, width = self.pixels.shape[:2]
        counts = Counter(self.class_names[label] for label in self.detections.classes.tolist())
        found = ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "nothing"
        return f"Prediction({self.name}, {width} x {height}: {found})"

    def overlay(self) -> NDArray[np.uint8]:
        """Draw the detections on a copy of the picture, (H, W, 3) uint8 RGB."""
        from lucid_yolo.viz.draw import draw_detections  # noqa: PLC0415 - only who draws needs it

        return draw_detections(self.pixels, self.detections, self.class_names, skeleton=self.skeleton)

    def show(self) -> None:
        """Show the overlay: inline in a notebook, in a viewer elsewhere."""
        from PIL import Image  # noqa: PLC0415 - only who looks needs it

        picture = Image.fromarray(self.overlay())
        try:
            from IPython import get_ipython  # noqa: PLC0415
            from IPython.display import display  # noqa: PLC0415
        except ImportError:
            picture.show()
            return
        if get_ipython() is None:
            picture.show()
        else:
            display(picture)  # type: ignore[no-untyped-call]

    def records(self) -> list[dict[str, Any]]:
        """Plain records: file, class, score, box as left, top, width, height in pixels, and what else was found."""
        return detection_records(self.name, self.detections, self.class_names, self.category_ids)

    def __len__(self) -> int:
        return len(self.detections)


class Predictions(tuple[Prediction, ...]):
    """Predictions of several pictures; one picture's can be used directly (``.show()``)."""

    __slots__ = ()

    def show(self) -> None:
        """Show every overlay."""
        for one in self:
            one.show()


def predict(config: PredictConfig) -> Predictions:
    """Run a checkpoint over pictures, and write what the settings ask for into ``config.out``.

    Args:
        config: settings; ``source`` is a path, a folder, a pattern, (H, W, 3) uint8 RGB pixels, or a list of these.

    Raises:
        ConfigError: the overlap of tiles is not less than their side, or there are no tiles.
        RunError: the checkpoint cannot be used, or the output folder is taken.
        DataError: a picture that was named cannot be found or read; none of a folder or pattern can be read.
    """
    tiles = _tiles(config)
    sources = list_sources(config.source)
    trained = load_model(resolve_user_path(config.checkpoint), device=choose_device(config.accelerator))
    out = claim_output(resolve_user_path(config.out)) if config.out is not None else None
    stems = output_stems([source.name for source in sources])
    info = trained.info
    skeleton = () if info.spec.keypoints is None else info.spec.keypoints.skeleton
    found = []
    for position, pixels, detections in _search(trained, _readable(sources, trained.exif_orientation), config, tiles):
        prediction = Prediction(
            sources[position].name, pixels, detections, info.class_names, info.category_ids, skeleton
        )
        found.append(prediction)
        if out is not None:
            _write(out, stems[position], prediction, config.save)
    if sources and not found:
        raise DataError(f"source={config.source}: none of the {len(sources)} pictures can be read.")
    if out is not None and config.save.json:
        write_json(out / "predictions.json", (record for one in found for record in one.records()))
    return Predictions(found)


def detect(trained: TrainedModel, pictures: Sequence[NDArray[np.uint8]], *, decode: str) -> list[Detections]:
    """Run a model on a batch of pictures.

    Args:
        trained: the model.
        pictures: (H, W, 3) uint8 RGB each.
        decode: name of the decoder.

    Returns:
        Detections of each picture, in its own pixels.
    """
    size = trained.info.image_size
    canvases, boxes = zip(*(letterboxed(pixels, size) for pixels in pictures), strict=True)
    device = next(trained.model.parameters()).device
    images = scale_images(
        torch.from_numpy(np.stack(canvases)).to(device).permute(0, 3, 1, 2), memory_format=torch.contiguous_format
    )
    decoder = next(d for d in trained.task.decoders if d.name == decode)
    with torch.no_grad():
        predictions = trained.model(images)
    return trained.task.decode(decoder, predictions, boxes, size)


def claim_output(path: Path) -> Path:
    """Make the output folder; results of an earlier call are never written over.

    Raises:
        RunError: the folder holds files already or cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        taken = any(path.iterdir())
    except OSError as error:
        raise RunError(f"out={path} cannot be used: {error.strerror}. Choose another folder.") from None
    if taken:
        raise RunError(f"out={path} is not empty. Choose a new or an empty folder.")
    return path


@dataclass(frozen=True, slots=True)
class _Part:
    """One window of a picture.

    Attributes:
        position: of the picture's source.
        pixels: (H, W, 3) uint8 RGB, the whole picture.
        cover: windows of that picture.
        window: this one.
    """

    position: int
    pixels: NDArray[np.uint8]
    cover: Sequence[Window]
    window: Window


def _tiles(config: PredictConfig) -> tuple[int, int] | None:
    """Side and overlap of the tiles in pixels; None: there are none."""
    if config.tile is None:
        if config.overlap is not None:
            raise ConfigError([f"overlap={config.overlap} is of tiles, and there are none: set tile=PIXELS too."])
        return None
    overlap = OVERLAP if config.overlap is None else config.overlap
    if overlap >= config.tile:
        raise ConfigError([f"overlap={overlap} must be less than tile={config.tile}: set overlap=PIXELS."])
    return config.tile, overlap


def _search(
    trained: TrainedModel,
    pictures: Iterable[tuple[int, NDArray[np.uint8]]],
    config: PredictConfig,
    tiles: tuple[int, int] | None,
) -> Iterator[tuple[int, NDArray[np.uint8], Detections]]:
    """Detections of each picture, in order. A batch takes windows of as many pictures as it has room for."""
    parts = _parts(pictures, tiles)
    waiting: list[Detections] = []  # of the first windows of a picture, whose last ones come in the next batch
    while chunk := list(islice(parts, config.batch_size)):
        detections = detect(trained, [part.window.crop(part.pixels) for part in chunk], decode=config.decode)
        for part, one in zip(chunk, detections, strict=True):
            waiting.append(one.above(config.confidence))
            if len(waiting) == len(part.cover):
                height, width = part.pixels.shape[:2]
                yield part.position, part.pixels, merge_windows(waiting, part.cover, width=width, height=height)
                waiting.clear()


def _parts(pictures: Iterable[tuple[int, NDArray[np.uint8]]], tiles: tuple[int, int] | None) -> Iterator[_Part]:
    """Windows of pictures, one after the other; without tiles each picture is one."""
    for position, pixels in pictures:
        height, width = pixels.shape[:2]
        size, overlap = tiles or (max(width, height), 0)
        cover = windows(width, height, size, overlap)
        for window in cover:
            yield _Part(position, pixels, cover, window)


def _readable(sources: Iterable[Source], exif: ExifOrientation) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Read the pictures, each with its position; one that a folder or a pattern brought may fail, with a warning."""
    for position, source in enumerate(sources):
        try:
            pixels = read_image(source.name, exif=exif) if source.pixels is None else source.pixels
        except DataError as error:
            if not source.listed:
                raise
            warnings.warn(f"{error}; left out", stacklevel=5)
        else:
            yield position, pixels


def _write(out: Path, stem: str, one: Prediction, save: SaveConfig) -> None:
    from lucid_yolo.viz.draw import save_picture  # noqa: PLC0415 - only who writes needs it

    height, width = one.pixels.shape[:2]
    if save.overlay:
        save_picture(one.overlay(), out / "overlays" / f"{stem}.png")
    if save.txt:
        write_yolo(out / "labels", stem, yolo_lines(one.detections, width=width, height=height))
