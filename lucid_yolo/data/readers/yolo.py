"""YOLO labels: data.yaml and one text file an image, each line ``class x_center y_center width height`` as fractions.

Lines of the segment format (``class x1 y1 x2 y2 x3 y3 ...``) give the box around the polygon.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.config.schema import DataConfig
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import LabelKind
from lucid_yolo.data.readers.columns import ObjectRows, SplitFacts, build_index
from lucid_yolo.data.readers.layout import refuse_image_keys
from lucid_yolo.data.readers.parsers import get_parser
from lucid_yolo.data.readers.parsers.base import Box, LabelParser, Parsed, UnusableLabelError
from lucid_yolo.data.readers.problems import LabelError, Problems, counted, some
from lucid_yolo.data.readers.settings import Split, check_options
from lucid_yolo.data.readers.sizes import displayed_sizes, missing_files
from lucid_yolo.data.readers.yolo_files import DataYaml, label_path, list_images, read_data_yaml

_ROUNDING = 1e-4  # beyond 0 and 1, from writing few decimals
_PIXELS = 2.0  # no fraction is as large as this, a pixel nearly always is


@dataclass(slots=True)
class _Line:
    """One parsed line, in fractions of the picture."""

    number: int
    label: int
    box: Box
    value: Any


@dataclass(slots=True)
class _Tally:
    """What was seen over all label files of a split."""

    classes: set[int] = field(default_factory=set)
    bad_classes: int = 0
    polygons: int = 0
    duplicates: list[str] = field(default_factory=list)


def folders(config: DataConfig) -> tuple[Path, ...]:
    """Folders that places of a split may be relative to, in the order in which they are tried."""
    data = read_data_yaml(config)
    return data.base, data.file.parent.absolute()


def read(config: DataConfig, split: Split, labels: LabelKind) -> SplitIndex:
    """Read one split.

    Raises:
        ConfigError: a setting that this format does not have.
        DataError: files not found, or labels that cannot be used; all problems of a split at once.
    """
    check_options(config, allowed=())
    refuse_image_keys(config)
    data = read_data_yaml(config)
    images, source = list_images(data, config, split)
    problems = Problems(f"the {split} split of {data.file}")
    sizes, unreadable, notes = displayed_sizes(images, config, problems)
    files, parser = [label_path(image) for image in images], get_parser(labels)
    absent = set(missing_files(files))
    if len(absent) == len(images):
        raise LabelError(
            f"{source}: none of the {counted(len(images), 'image')} has a label file; looked for {files[0]} and so on "
            f"(the folder 'images' in a path becomes 'labels'; without it, labels lie beside the images)",
            images=images,
        )
    try:
        keypoints = parser.yolo_keypoints(data.keypoint_shape, data.keypoint_flip)
    except UnusableLabelError as error:
        raise LabelError(f"{data.file}: {error}", images=images) from None
    tally = _Tally()
    rows = ObjectRows()
    for position, label_file in enumerate(files):
        if label_file in absent:
            continue
        lines = _read_lines(label_file, data, parser, tally, problems)
        if position not in unreadable:
            _append(rows, position, lines, sizes[position], parser)
    if tally.bad_classes and min(tally.classes) == 1 and max(tally.classes) == len(data.names):
        problems.hint(f"The labels look 1-based: they use 1 to {len(data.names)}, and classes count from 0.")
    problems.raise_if_any(images)
    facts = SplitFacts(
        name=split,
        source=source,
        class_names=data.names,
        category_ids=tuple(range(len(data.names))),
        paths=tuple(images),
        image_ids=np.arange(len(images), dtype=np.int64),
        sizes=sizes,
        keypoints=keypoints,
        labels=labels,
    )
    notes = [*data.notes, *notes, *_tally_notes(tally, images, files, absent)]
    return build_index(
        facts, rows, where=lambda image, key: f"{files[image]} line {key}", pack=parser.pack, notes=notes
    )


def _read_lines(file: str, data: DataYaml, parser: LabelParser, tally: _Tally, problems: Problems) -> list[_Line]:
    try:
        with open(file, encoding="utf-8-sig") as stream:
            texts = stream.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        problems.add(f"{file}: cannot be read: {error}")
        return []
    lines: list[_Line] = []
    seen: dict[tuple[str, ...], int] = {}
    for number, text in enumerate(texts, 1):
        fields = tuple(text.split())
        if not fields:
            continue
        if fields in seen:
            tally.duplicates.append(f"{file} line {number}")
            continue
        seen[fields] = number
        where = f"{file} line {number}"
        label = _read_class(fields[0], len(data.names), where, tally, problems)
        parsed = _read_label(fields, data, parser, where, tally, problems)
        if label is not None and parsed is not None and parsed.box is not None:
            lines.append(_Line(number, label, parsed.box, parsed.value))
    return lines


def _read_class(text: str, count: int, where: str, tally: _Tally, problems: Problems) -> int | None:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value.is_integer():
        problems.add(f"{where}: class {text!r} is not a whole number; allowed: 0 to {count - 1}")
        return None
    label = int(value)
    tally.classes.add(label)
    if not 0 <= label < count:
        tally.bad_classes += 1
        problems.add(f"{where}: class {label}; allowed: 0 to {count - 1}")
        return None
    return label


def _read_label(
    fields: Sequence[str], data: DataYaml, parser: LabelParser, where: str, tally: _Tally, problems: Problems
) -> Parsed | None:
    try:
        values = [float(text) for text in fields[1:]]
    except ValueError:
        problems.add(f"{where}: {' '.join(fields[1:5])!r} are not all numbers")
        return None
    try:
        parsed = parser.yolo(values, data.keypoint_shape)
    except UnusableLabelError as error:
        problems.add(f"{where}: {counted(len(fields), 'field')}; {error}")
        return None
    for value in parser.yolo_coordinates(values, data.keypoint_shape):
        if not -_ROUNDING <= value <= 1 + _ROUNDING:  # also refuses nan
            pixels = "; it looks like pixels: divide x by the width and y by the height" if value >= _PIXELS else ""
            problems.add(f"{where}: coordinate {value:g}; allowed: 0 to 1, fractions of the picture{pixels}")
            return None
    tally.polygons += parsed.simplified
    return parsed


def _append(rows: ObjectRows, image: int, lines: Sequence[_Line], size: NDArray[np.int32], parser: LabelParser) -> None:
    width, height = size.tolist()
    for line in lines:
        x1, y1, x2, y2 = line.box
        rows.image.append(image)
        rows.boxes.append((x1 * width, y1 * height, x2 * width, y2 * height))
        rows.classes.append(line.label)
        rows.crowd.append(False)
        rows.areas.append(math.nan)
        rows.keys.append(line.number)
        rows.labels.append(parser.scaled(line.value, width, height))


def _tally_notes(tally: _Tally, images: Sequence[str], labels: Sequence[str], absent: set[str]) -> list[str]:
    notes = []
    if absent:
        names = some(image for image, label in zip(images, labels, strict=True) if label in absent)
        notes.append(f"{counted(len(absent), 'image')} without a label file count as backgrounds: {names}")
    if orphans := _orphans(images, labels):
        notes.append(f"{counted(len(orphans), 'label file')} without an image: {some(orphans)}")
    if tally.polygons:
        notes.append(f"{counted(tally.polygons, 'polygon line')} read as the box around the polygon")
    if tally.duplicates:
        notes.append(f"{counted(len(tally.duplicates), 'repeated line')} dropped: {some(tally.duplicates)}")
    return notes


def _orphans(images: Sequence[str], labels: Sequence[str]) -> list[str]:
    """Files in ``labels`` folders with no picture of their name, also not one of another split, in the image folder."""
    folders = {os.path.dirname(label): os.path.dirname(image) for image, label in zip(images, labels, strict=True)}
    orphans = []
    for label_folder, image_folder in sorted(folders.items()):
        if label_folder == image_folder or not os.path.isdir(label_folder):
            continue
        pictures = {os.path.splitext(name)[0] for name in os.listdir(image_folder)}
        for name in sorted(os.listdir(label_folder)):
            stem, suffix = os.path.splitext(name)
            if suffix == ".txt" and stem not in pictures and name != "classes.txt":
                orphans.append(os.path.join(label_folder, name))
    return orphans
