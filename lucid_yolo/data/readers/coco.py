"""COCO JSON (https://cocodataset.org/#format-data), object detection."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.config.errors import DataError
from lucid_yolo.config.schema import BadImages, DataConfig
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import KeypointSpec, LabelKind
from lucid_yolo.data.readers.columns import ObjectRows, SplitFacts, build_index
from lucid_yolo.data.readers.layout import find_annotations, find_images
from lucid_yolo.data.readers.parsers import get_parser
from lucid_yolo.data.readers.parsers.base import (
    FARTHEST,
    LabelParser,
    Parsed,
    UnusableLabelError,
    is_number,
    is_place,
)
from lucid_yolo.data.readers.problems import LabelError, Problems, allowed_ids, counted, some
from lucid_yolo.data.readers.settings import Split, check_options, naming
from lucid_yolo.data.readers.sizes import missing_files, read_headers, size_conflict

_LISTS = ("images", "annotations", "categories")
_LARGEST_ID = 2**63 - 1  # ids are kept in 64 bits
_LARGEST_SIDE = 2**31 - 1
_VERIFIED = 5000  # of a larger split, so many evenly spread files are compared with the sizes that the JSON states


@dataclass(slots=True)
class _Categories:
    names: tuple[str, ...]
    ids: tuple[int, ...]
    labels: dict[int, int]  # from category id


@dataclass(slots=True)
class _Images:
    names: list[str]
    ids: list[int]
    sizes: list[tuple[int, int] | None]  # as the JSON states them
    positions: dict[int, int]  # from image id


def read(config: DataConfig, split: Split, labels: LabelKind) -> SplitIndex:
    """Read one split.

    Raises:
        ConfigError: a setting that this format does not have.
        DataError: files not found or ambiguous, or labels that cannot be used; all problems of a file at once.
    """
    check_options(config, allowed=())
    return read_annotations(find_annotations(config, split, labels), config, split, labels)


def read_annotations(source: Path, config: DataConfig, split: Split, labels: LabelKind) -> SplitIndex:
    """Read an annotation file; its images are found next to it.

    Raises:
        DataError: as :func:`read`.
    """
    document = _load(source)
    problems, parser = Problems(str(source)), get_parser(labels)
    categories = _read_categories(document["categories"], problems)
    images = _read_images(document["images"], problems)
    problems.raise_if_any()  # ids that are wrong make every annotation wrong
    folder = find_images(config, split, source, images.names)
    paths = [os.path.join(folder, name) for name in images.names]
    if missing := missing_files(paths):
        names = some(os.path.relpath(path, folder) for path in missing)
        raise LabelError(
            f"{source}: {counted(len(missing), 'image file')} of {len(paths)} missing in {folder}: {names}; "
            f"{naming(split, 'FOLDER', suffix='_images')} picks another folder",
            images=sorted(set(paths) - set(missing)),
        )
    rows = _read_objects(document["annotations"], categories, images, parser, problems)
    keypoints = _read_keypoints(document["categories"], parser, problems)
    if keypoints is not None:
        _check_keypoints(rows, images, len(keypoints), problems)
    sizes, unreadable, notes = _displayed_sizes(paths, images, config, problems)
    problems.raise_if_any(paths)
    facts = SplitFacts(
        name=split,
        source=str(source),
        class_names=categories.names,
        category_ids=categories.ids,
        paths=tuple(paths),
        image_ids=np.asarray(images.ids, np.int64),
        sizes=sizes,
        keypoints=keypoints,
        labels=labels,
    )
    return build_index(
        facts,
        _without(rows, unreadable),
        where=lambda image, key: f"annotation {key} ({images.names[image]})",
        pack=parser.pack,
        notes=notes,
    )


def _load(source: Path) -> dict[str, list[Any]]:
    try:
        with open(source, encoding="utf-8-sig") as file:
            document = json.load(file)
    except json.JSONDecodeError as error:
        raise DataError(f"{source}: not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{source}: not UTF-8 text: {error.reason} at byte {error.start}") from None
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, lists in lists without end
        raise DataError(f"{source}: not JSON that can be read: {error}") from None
    except OSError as error:
        raise DataError(f"{source}: {(error.strerror or str(error)).lower()}") from None
    if not isinstance(document, dict):
        raise DataError(
            f"{source}: holds a JSON {type(document).__name__}; COCO labels are an object with {_keys(_LISTS)}"
        )
    if absent := [key for key in _LISTS if not isinstance(document.get(key), list)]:
        raise DataError(
            f"{source}: no list {_keys(absent)}; COCO labels need {_keys(_LISTS)}, it has {_keys(document)}"
        )
    if not document["images"]:
        raise DataError(f"{source}: the list 'images' is empty")
    if not document["categories"]:
        raise DataError(f"{source}: the list 'categories' is empty")
    return {key: document[key] for key in _LISTS}


def _keys(keys: Any) -> str:
    return ", ".join(repr(str(key)) for key in keys)


def _looked_up(table: dict[int, int], record: dict[str, Any], key: str) -> int | None:
    value = record.get(key)
    number = value if type(value) is int else _integer(value)
    return None if number is None else table.get(number)


def _integer(value: Any) -> int | None:
    """An id as an int; None for anything that is not a whole number of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    whole = isinstance(value, int) or value.is_integer()
    return int(value) if whole and abs(value) <= _LARGEST_ID else None


def _read_categories(records: list[Any], problems: Problems) -> _Categories:
    """Classes by ascending id, which closes the gaps between the ids."""
    names: dict[int, str] = {}
    for number, record in enumerate(records):
        where = f"categories[{number}]"
        number_id = _integer(record.get("id")) if isinstance(record, dict) else None
        if number_id is None:
            problems.add(f"{where}: {_shown(record, 'id')}; a whole number of 64 bits is needed")
        elif number_id in names:
            problems.add(f"{where}: id {number_id} is there twice ({names[number_id]!r} and {record.get('name')!r})")
        else:
            name = record.get("name")
            names[number_id] = str(number_id if name is None else name)
    ids = tuple(sorted(names))
    return _Categories(tuple(names[i] for i in ids), ids, {category: label for label, category in enumerate(ids)})


def _shown(record: Any, key: str) -> str:
    if not isinstance(record, dict):
        return f"{record!r} is not an object"
    return f"{key} is {record[key]!r}" if key in record else f"has no {key!r} (its keys: {_keys(record)})"


def _read_images(records: list[Any], problems: Problems) -> _Images:
    images = _Images([], [], [], {})
    for number, record in enumerate(records):
        where = f"images[{number}]"
        image_id = _integer(record.get("id")) if isinstance(record, dict) else None
        if image_id is None:
            problems.add(f"{where}: {_shown(record, 'id')}; a whole number of 64 bits is needed")
            continue
        name = record.get("file_name")
        if not isinstance(name, str) or not name:
            problems.add(f"{where}: {_shown(record, 'file_name')}; the name of a file is needed")
            continue
        if image_id in images.positions:
            other = images.names[images.positions[image_id]]
            problems.add(f"{where}: image id {image_id} is there twice ({other} and {name})")
            continue
        images.positions[image_id] = len(images.ids)
        images.ids.append(image_id)
        images.names.append(name.replace("\\", "/"))
        images.sizes.append(_read_size(record))
    return images


def _read_size(record: dict[str, Any]) -> tuple[int, int] | None:
    """Width and height of an image; None where they are not stated or cannot be a size."""
    width, height = _integer(record.get("width")), _integer(record.get("height"))
    if width is None or height is None or not all(1 <= side <= _LARGEST_SIDE for side in (width, height)):
        return None
    return width, height


def _read_keypoints(records: list[Any], parser: LabelParser, problems: Problems) -> KeypointSpec | None:
    try:
        return parser.coco_keypoints(records)
    except UnusableLabelError as error:
        problems.add(f"categories: {error}")
        return None


def _check_keypoints(rows: ObjectRows, images: _Images, count: int, problems: Problems) -> None:
    """Every object has the points that its category names, or none."""
    for image, key, points in zip(rows.image, rows.keys, rows.labels, strict=True):
        if points is not None and len(points) != count:
            problems.add(
                f"annotation {key} ({images.names[image]}): keypoints has {3 * len(points)} numbers; the categories "
                f"name {counted(count, 'point')}, so {3 * count} are needed"
            )


def _read_objects(
    records: list[Any], categories: _Categories, images: _Images, parser: LabelParser, problems: Problems
) -> ObjectRows:
    rows = ObjectRows()
    for number, record in enumerate(records):
        if not isinstance(record, dict):
            problems.add(f"annotations[{number}]: {record!r} is not an object")
            continue
        key = record.get("id", f"number {number}")
        image = _looked_up(images.positions, record, "image_id")
        if image is None:
            what = _shown(record, "image_id")
            problems.add(f"annotation {key}: {what}; allowed: the {counted(len(images.ids), 'id')} in 'images'")
            continue
        where = f"annotation {key} ({images.names[image]})"
        label = _looked_up(categories.labels, record, "category_id")
        if label is None:
            problems.add(f"{where}: {_shown(record, 'category_id')}; allowed: {allowed_ids(categories.ids)}")
            continue
        parsed = _parsed(record, images.sizes[image], parser, where, problems)
        box = (parsed.box or _read_box(record, where, problems)) if parsed is not None else None
        crowd = record.get("iscrowd")  # null and absent mean no crowd
        if crowd not in (0, 1, None):
            problems.add(f"{where}: iscrowd is {crowd!r}; allowed: 0 and 1")
            continue
        if parsed is None or box is None:
            continue
        area = record.get("area")
        rows.image.append(image)
        rows.boxes.append(box)
        rows.classes.append(label)
        rows.crowd.append(bool(crowd))
        rows.areas.append(float(area) if is_number(area) and 0 <= area < math.inf else math.nan)
        rows.keys.append(key if isinstance(key, int) else number)
        rows.labels.append(parsed.value)
    return rows


def _parsed(
    record: dict[str, Any], size: tuple[int, int] | None, parser: LabelParser, where: str, problems: Problems
) -> Parsed | None:
    try:
        parsed = parser.coco(record)
    except UnusableLabelError as error:
        problems.add(f"{where}: {error}")
        return None
    if parsed.size is not None and size is not None and parsed.size != size:
        made_for, stated = (f"{width}x{height}" for width, height in (parsed.size, size))
        problems.add(f"{where}: its label is made for a picture of {made_for} pixels, its image has {stated}")
        return None
    return parsed


def _read_box(record: dict[str, Any], where: str, problems: Problems) -> tuple[float, float, float, float] | None:
    box = record.get("bbox")
    if not isinstance(box, list) or len(box) != 4 or not all(map(is_number, box)):
        problems.add(f"{where}: {_shown(record, 'bbox')}; four numbers [x, y, width, height] in pixels are needed")
        return None
    x, y, width, height = map(float, box)
    if not all(map(is_place, (x, y, width, height))):
        problems.add(f"{where}: bbox is {box}; the numbers must be finite, and none beyond {FARTHEST}")
        return None
    if width < 0 or height < 0:
        problems.add(f"{where}: bbox is {box}; width and height must not be negative (it is [x, y, width, height])")
        return None
    return x, y, x + width, y + height


def _displayed_sizes(
    paths: list[str], images: _Images, config: DataConfig, problems: Problems
) -> tuple[NDArray[np.int32], set[int], list[str]]:
    """Sizes under the EXIF rule, positions of images with an unreadable header, notes."""
    step = max(1, math.ceil(len(paths) / _VERIFIED))
    chosen = [i for i in range(len(paths)) if i % step == 0 or images.sizes[i] is None]
    sizes = np.array([size or (config.image_size, config.image_size) for size in images.sizes], np.int32)
    unreadable: set[int] = set()
    for i, header in zip(chosen, read_headers([paths[i] for i in chosen]), strict=True):
        declared = images.sizes[i]
        if isinstance(header, DataError):
            unreadable.add(i)
            if config.bad_images is BadImages.RAISE:
                problems.add(str(header))
        elif declared is None:
            sizes[i] = header.size(config.exif_orientation)
        elif conflict := size_conflict(declared, header, config.exif_orientation):
            problems.add(f"{images.names[i]}: {conflict}")
    notes = []
    if repeated := [path for path, times in Counter(paths).items() if times > 1]:
        names = some(os.path.basename(path) for path in repeated)
        notes.append(f"{counted(len(repeated), 'image file')} listed under several image ids: {names}")
    if step > 1:
        notes.append(f"the sizes of {len(chosen)} of {len(paths)} images were compared with their files")
    if absent := sum(size is None for size in images.sizes):
        notes.append(f"{counted(absent, 'image')} without a usable width and height in the JSON: read from the files")
    if unreadable:
        names = some(images.names[i] for i in sorted(unreadable))
        notes.append(f"{counted(len(unreadable), 'image')} cannot be read and count as empty pictures: {names}")
        if config.bad_images is BadImages.RAISE:
            problems.hint("data.bad_images=skip uses empty pictures instead of images that cannot be read.")
    return sizes, unreadable, notes


def _without(rows: ObjectRows, unreadable: set[int]) -> ObjectRows:
    """Objects of images that can be read."""
    if not unreadable:
        return rows
    kept = [i for i, image in enumerate(rows.image) if image not in unreadable]
    return ObjectRows(
        [rows.image[i] for i in kept],
        [rows.boxes[i] for i in kept],
        [rows.classes[i] for i in kept],
        [rows.crowd[i] for i in kept],
        [rows.areas[i] for i in kept],
        [rows.keys[i] for i in kept],
        [rows.labels[i] for i in kept],
    )
