"""What the formats of oriented boxes share: classes by name, ignored objects, one label file an image."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.config.errors import ConfigError, DataError
from lucid_yolo.config.schema import DataConfig
from lucid_yolo.data.image import image_header
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import LabelKind
from lucid_yolo.data.readers.columns import ObjectRows, SplitFacts, build_index
from lucid_yolo.data.readers.parsers import get_parser
from lucid_yolo.data.readers.parsers.base import LabelParser, UnusableLabelError
from lucid_yolo.data.readers.problems import LabelError, Problems, counted, some
from lucid_yolo.data.readers.settings import Split, naming
from lucid_yolo.data.readers.sizes import displayed_sizes, size_conflict
from lucid_yolo.data.readers.yolo_files import IMAGE_SUFFIXES

CLASS_OPTIONS = ("classes", "ignore")
"""Keys of ``data.options`` that :func:`find_classes` reads."""


@dataclass(frozen=True, slots=True)
class OrientedObject:
    """One object of a label file.

    Attributes:
        line: of the file.
        name: of its class.
        corners: x1, y1, ... x4, y4 in pixels.
        difficult: it need not be found.
    """

    line: int
    name: str
    corners: tuple[float, ...]
    difficult: bool


@dataclass(frozen=True, slots=True)
class LabelledImage:
    """An image and what its label file says.

    Attributes:
        image: its file.
        label: the label file.
        objects: in the order of the file.
        size: width and height that the label file states.
    """

    image: str
    label: str
    objects: tuple[OrientedObject, ...]
    size: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Classes:
    """Which names are classes, and which are ignored.

    Attributes:
        names: in the order of their labels.
        ignored: their objects are regions of no interest, whatever is found there.
    """

    names: tuple[str, ...]
    ignored: frozenset[str]


def find_classes(config: DataConfig, seen: Iterable[str], problems: Problems) -> Classes:
    """Take the classes from ``data.options``: ``classes`` lists them, ``ignore`` lists names that are none.

    Args:
        config: the data settings.
        seen: names in the label files of all splits; read, and sorted, if no classes are listed.
        problems: found so far, which may be why a name is missing.

    Raises:
        ConfigError: lists that contradict each other.
        DataError: there is no class, or no object of a name that is to be ignored.
    """
    listed, ignored = (_names(config, key) for key in ("classes", "ignore"))
    if both := sorted(set(listed) & set(ignored)):
        raise ConfigError([f"data.options.ignore: {some(both)} also in data.options.classes; one of them is wrong"])
    if listed:
        return Classes(listed, frozenset(ignored))
    found = set(seen)
    if not found - set(ignored) or set(ignored) - found:
        problems.raise_if_any()
    if absent := sorted(set(ignored) - found):
        raise DataError(
            f"data.options.ignore: no object is named {some(absent)}; names in the label files: {some(sorted(found))}"
        )
    if not found - set(ignored):
        raise DataError(f"{config.root}: the label files have no object, so the classes are unknown")
    return Classes(tuple(sorted(found - set(ignored))), frozenset(ignored))


def pair_images(labels: Sequence[Path], folder: Path, split: Split) -> list[str]:
    """Find the image of each label file: the same name with the suffix of an image.

    Raises:
        DataError: images that are missing, or that are there twice.
    """
    by_stem: dict[str, list[str]] = {}
    for name in sorted(os.listdir(folder)):
        stem, suffix = os.path.splitext(name)
        if suffix.lower() in IMAGE_SUFFIXES:
            by_stem.setdefault(stem, []).append(name)
    if missing := [label.stem for label in labels if label.stem not in by_stem]:
        raise LabelError(
            f"{folder}: no image for {counted(len(missing), 'label file')} of {len(labels)}: {some(missing)}; "
            f"{naming(split, 'FOLDER', suffix='_images')} picks another folder",
            images=sorted(str(folder / name) for names in by_stem.values() for name in names),
        )
    if twice := [some(by_stem[label.stem]) for label in labels if len(by_stem[label.stem]) > 1]:
        raise DataError(
            f"{folder}: several images of one name: {some(twice)}; only one of them can belong to the labels"
        )
    return [str(folder / by_stem[label.stem][0]) for label in labels]


def build_split(
    images: Sequence[LabelledImage],
    classes: Classes,
    config: DataConfig,
    split: Split,
    labels: LabelKind,
    *,
    source: str,
    problems: Problems,
    notes: Sequence[str] = (),
) -> SplitIndex:
    """Make the columns of a split.

    A difficult object is a crowd of its class; an object of an ignored name is a crowd of every class.

    Args:
        images: with their objects.
        classes: names and what is ignored.
        config: the data settings.
        split: which split.
        labels: what is read of an object.
        source: where the labels come from.
        problems: found so far; all are raised together.
        notes: what the reader itself has to say.

    Raises:
        DataError: labels that cannot be used.
    """
    paths = [one.image for one in images]
    sizes, unreadable, unread = displayed_sizes(paths, config, problems)
    rows, parser = ObjectRows(), get_parser(labels)
    for position, one in enumerate(images):
        if position in unreadable:
            continue
        _check_size(one, sizes[position], config, problems)
        for found in one.objects:
            _append(rows, position, found, one.label, classes, parser, problems)
    problems.raise_if_any(paths)
    facts = SplitFacts(
        name=split,
        source=source,
        class_names=classes.names,
        category_ids=tuple(range(len(classes.names))),
        paths=tuple(paths),
        image_ids=np.arange(len(paths), dtype=np.int64),
        sizes=sizes,
        labels=labels,
        ignored="difficult or ignored object",
    )
    return build_index(
        facts,
        rows,
        where=lambda image, key: f"{images[image].label} line {key}",
        pack=parser.pack,
        notes=[*notes, *unread],
    )


def _names(config: DataConfig, key: str) -> tuple[str, ...]:
    value = config.options.get(key) or []
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise ConfigError([f"data.options.{key}={value!r}: a list of names is needed, such as [plane,ship]"])
    if len(set(value)) < len(value):
        raise ConfigError([f"data.options.{key}={value!r}: a name is there twice"])
    return tuple(value)


def _check_size(one: LabelledImage, size: NDArray[np.int32], config: DataConfig, problems: Problems) -> None:
    if one.size is None or one.size == tuple(size.tolist()):
        return
    if conflict := size_conflict(one.size, image_header(one.image), config.exif_orientation):
        problems.add(f"{one.label}: {conflict}")


def _append(
    rows: ObjectRows,
    image: int,
    found: OrientedObject,
    file: str,
    classes: Classes,
    parser: LabelParser,
    problems: Problems,
) -> None:
    where = f"{file} line {found.line}"
    if found.name in classes.ignored:
        chosen = range(len(classes.names))
    elif found.name in classes.names:
        first = classes.names.index(found.name)
        chosen = range(first, first + 1)
    else:
        problems.add(f"{where}: class {found.name!r}; allowed: {some(classes.names, shown=20)}")
        problems.hint("data.options.classes lists the classes, data.options.ignore the names to ignore.")
        return
    crowd = found.difficult or found.name in classes.ignored
    try:
        parsed = parser.coco(_as_coco(found, crowd=crowd))
    except UnusableLabelError as error:
        problems.add(f"{where}: {error}")
        return
    box = parsed.box or _around(found.corners)
    for label in chosen:
        rows.image.append(image)
        rows.boxes.append(box)
        rows.classes.append(label)
        rows.crowd.append(crowd)
        rows.areas.append(math.nan)
        rows.keys.append(found.line)
        rows.labels.append(parsed.value)


def _as_coco(found: OrientedObject, *, crowd: bool) -> dict[str, Any]:
    """The object as an annotation of COCO JSON, which every parser understands."""
    x1, y1, x2, y2 = _around(found.corners)
    corners = list(found.corners)
    return {"bbox": [x1, y1, x2 - x1, y2 - y1], "segmentation": [corners], "corners": corners, "iscrowd": int(crowd)}


def _around(corners: Sequence[float]) -> tuple[float, float, float, float]:
    xs, ys = corners[::2], corners[1::2]
    return min(xs), min(ys), max(xs), max(ys)
