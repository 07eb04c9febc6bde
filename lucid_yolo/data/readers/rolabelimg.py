"""roLabelImg: XML as in Pascal VOC, whose objects have a ``robndbox`` (cx, cy, w, h, angle) or an upright ``bndbox``.

``ImageSets/Main/<split>.txt`` lists the names of a split, ``Annotations`` has their XML files and ``JPEGImages`` the
pictures. The angle is in radians and turns the side w from +x toward +y, clockwise on the screen.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from lucid_yolo.config.errors import DataError
from lucid_yolo.config.schema import DataConfig
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import LabelKind
from lucid_yolo.data.readers.layout import SPLIT_NAMES, its_splits
from lucid_yolo.data.readers.oriented import (
    CLASS_OPTIONS,
    LabelledImage,
    OrientedObject,
    build_split,
    find_classes,
    pair_images,
)
from lucid_yolo.data.readers.parsers.base import FARTHEST, is_place
from lucid_yolo.data.readers.problems import Problems, some
from lucid_yolo.data.readers.settings import SPLITS, Split, check_options, data_root, named_path, naming
from lucid_yolo.data.readers.xml_lines import Element, read_xml
from lucid_yolo.ops.rotated_np import corners

_LISTS, _LABELS, _IMAGES = "ImageSets/Main", "Annotations", "JPEGImages"
_ROTATED, _UPRIGHT = ("cx", "cy", "w", "h", "angle"), ("xmin", "ymin", "xmax", "ymax")


def read(config: DataConfig, split: Split, labels: LabelKind) -> SplitIndex:
    """Read one split; ``data.options``: see ``find_classes``.

    Raises:
        ConfigError: a setting that this format does not have.
        DataError: files not found, or labels that cannot be used; all problems of a split at once.
    """
    check_options(config, allowed=CLASS_OPTIONS)
    listed = _list_file(config, split)
    files = _label_files(config, listed)
    paths = pair_images(files, _image_folder(config, split), split)
    problems = Problems(str(listed))
    images = [_read_image(path, file, problems) for path, file in zip(paths, files, strict=True)]
    seen = {found.name for one in images for found in one.objects}
    if not config.options.get("classes"):
        seen |= {name for other in SPLITS if other != split for name in _names(config, other)}
    classes = find_classes(config, seen, problems)
    return build_split(images, classes, config, split, labels, source=str(listed), problems=problems)


def _names(config: DataConfig, split: Split) -> set[str]:
    """Names of the classes in a split; what is wrong with it is found when it is read itself."""
    unheard = Problems("")
    files = _label_files(config, _list_file(config, split))
    return {found.name for file in files for found in _read_image("", file, unheard).objects}


def _list_file(config: DataConfig, split: Split) -> Path:
    root = data_root(config)
    named: str | None = getattr(config, split)
    if named is not None:
        return named_path(f"data.{split}", named, root).absolute()
    found = [path for path in _lists(root, split) if path.is_file()]
    if len(found) != 1:
        what = "several lists" if found else "no list"
        names = some(path.relative_to(root) for path in found or _lists(root, split))
        there = its_splits(config, lambda one: any(path.is_file() for path in _lists(root, one)))
        raise DataError(f"{root}: {what} of the {split} split: {names}; {there}; {naming(split, 'FILE')} names one")
    return found[0].absolute()


def _lists(root: Path, split: Split) -> list[Path]:
    return [root / _LISTS / f"{name}.txt" for name in SPLIT_NAMES[split]]


def _label_files(config: DataConfig, listed: Path) -> list[Path]:
    """XML files of the names in a list; what follows a name on its line is passed over, as VOC has flags there."""
    folder = data_root(config) / _LABELS
    try:
        lines = listed.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{listed}: cannot be read: {error}") from None
    names = [(number, line.split()[0]) for number, line in enumerate(lines, 1) if line.strip()]
    if not names:
        raise DataError(f"{listed}: the list is empty; one name a line is needed")
    problems, files = Problems(str(listed)), []
    for number, name in names:
        file = folder / f"{name}.xml"
        files.append(file)
        if not file.is_file():
            problems.add(f"line {number}: {name}: {file} does not exist")
    problems.raise_if_any()
    return list(dict.fromkeys(files))


def _image_folder(config: DataConfig, split: Split) -> Path:
    named: str | None = getattr(config, f"{split}_images")
    root = data_root(config)
    folder = root / _IMAGES if named is None else named_path(f"data.{split}_images", named, root)
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder of images; {naming(split, 'FOLDER', suffix='_images')} names one")
    return folder.absolute()


def _read_image(path: str, file: Path, problems: Problems) -> LabelledImage:
    try:
        document = read_xml(file)
    except DataError as error:
        problems.add(str(error))
        return LabelledImage(path, str(file), ())
    objects = []
    for element in document.all("object"):
        try:
            objects.append(_read_object(element))
        except ValueError as error:
            problems.add(f"{file} line {element.line}: {error}")
    return LabelledImage(path, str(file), tuple(objects), _read_size(document))


def _read_size(document: Element) -> tuple[int, int] | None:
    """Width and height; None where they are not stated, or as 0, which some tools write."""
    size = document.first("size")
    texts = [size.first(tag) for tag in ("width", "height")] if size is not None else []
    sides = [int(one.text) for one in texts if one is not None and one.text.isdecimal()]
    return (sides[0], sides[1]) if len(sides) == 2 and min(sides) > 0 else None


def _read_object(element: Element) -> OrientedObject:
    """Read one object.

    Raises:
        ValueError: what is wrong with it.
    """
    name, difficult = element.first("name"), element.first("difficult")
    if name is None or not name.text:
        raise ValueError("the object has no name; the class is needed")
    if difficult is not None and difficult.text not in ("0", "1"):
        raise ValueError(f"difficult is {difficult.text!r}; allowed: 0 and 1")
    return OrientedObject(
        line=element.line,
        name=name.text,
        corners=_read_corners(element),
        difficult=difficult is not None and difficult.text == "1",
    )


def _read_corners(element: Element) -> tuple[float, ...]:
    boxes = [*element.all("robndbox"), *element.all("bndbox")]
    if len(boxes) != 1:
        tags = ", ".join(box.tag for box in boxes) or "no box"
        raise ValueError(f"the object has {tags}; exactly one robndbox or bndbox is needed")
    if boxes[0].tag == "bndbox":
        x1, y1, x2, y2 = _numbers(boxes[0], _UPRIGHT)
        if x2 < x1 or y2 < y1:
            raise ValueError(f"bndbox is {x1:g}, {y1:g}, {x2:g}, {y2:g}; the maximum must not lie below the minimum")
        return x1, y1, x2, y1, x2, y2, x1, y2
    values = _numbers(boxes[0], _ROTATED)
    if min(values[2:4]) < 0:
        raise ValueError(f"w and h are {values[2]:g} and {values[3]:g}; they must not be negative")
    if abs(values[4]) > 2 * math.pi:
        raise ValueError(f"angle is {values[4]:g}; radians are needed, -6.28 to 6.28")
    return tuple(corners(np.array(values)).ravel().tolist())


def _numbers(box: Element, tags: tuple[str, ...]) -> list[float]:
    values = []
    for tag in tags:
        child = box.first(tag)
        if child is None:
            raise ValueError(f"{box.tag} has no {tag}; it needs {', '.join(tags)}")
        try:
            value = float(child.text)
        except ValueError:
            value = math.nan
        if not is_place(value):
            raise ValueError(f"{tag} is {child.text!r}; a finite number is needed, not beyond {FARTHEST}")
        values.append(value)
    return values
