"""Detections as files: JSON records and YOLO text, one name a source picture."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.eval.columns import to_xywh
from lucid_yolo.ops.contours import Ring, outline
from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.rotated_np import corners


def detection_records(
    file_name: str, detections: Detections, class_names: Sequence[str], category_ids: Sequence[int]
) -> list[dict[str, Any]]:
    """Detections of one picture as plain records: file, class, score, and left, top, width, height in pixels.

    Where a detection has them, a record has ``segmentation`` (run lengths as in COCO files) and ``polygons`` (the
    outer outlines of the same mask, x and y in turn), ``keypoints`` (x, y, score of each in turn) or ``rotated``
    (centre x and y, width, height, angle in radians).

    Args:
        file_name: names the picture.
        detections: what was found in it.
        class_names: one name a class.
        category_ids: the training data's own id of each class.
    """
    columns = (detections.classes.tolist(), detections.scores.tolist(), to_xywh(detections.boxes).tolist())
    return [
        {
            "file_name": file_name,
            "class_id": label,
            "category_id": category_ids[label],
            "class_name": class_names[label],
            "score": score,
            "bbox": box,
            **_shape_fields(detections, row),
        }
        for row, (label, score, box) in enumerate(zip(*columns, strict=True))
    ]


def yolo_lines(detections: Detections, *, width: int, height: int) -> list[str]:
    """Detections of one picture as YOLO text: class, numbers as shares of the picture, confidence.

    The numbers are those of a YOLO label: of a mask its outline, of a rotated box its four corners, otherwise centre,
    width and height of the box, and behind them x, y and score of each key point. Outlines of several parts or with
    holes are one line that goes from ring to ring and back the same way, which covers the same by the even-odd rule.
    A mask without a pixel has no outline and no line.

    Args:
        detections: what was found.
        width: of the picture, pixels.
        height: of the picture, pixels.
    """
    size = np.array([width, height], np.float64)
    lines = []
    for row, (label, score) in enumerate(zip(detections.classes.tolist(), detections.scores.tolist(), strict=True)):
        numbers = _yolo_numbers(detections, row, size)
        if len(numbers):
            lines.append(" ".join([str(label), *(f"{value:.6f}" for value in numbers.tolist()), f"{score:.6f}"]))
    return lines


def output_stems(sources: Sequence[str]) -> tuple[str, ...]:
    """Name the outputs of each source, relative and without a suffix, so that no two sources share one.

    A stem that is alone stays as it is. Sources of the same stem keep their folders below the common one; pictures of
    one folder that differ in the suffix get it as part of the name (``a.jpg`` and ``a.png`` become ``a_jpg`` and
    ``a_png``); what is left (the same file twice) is numbered. Names that differ in case only count as the same: some
    file systems say so.

    Args:
        sources: paths, or names of pictures that come from memory.
    """
    paths = [PurePath(source) for source in sources]
    names = [_stem(path) for path in paths]
    nested = _below_common_folder(paths)
    candidates = (
        [str(path.with_name(_stem(path))) for path in nested],
        [
            str(path.with_name(f"{_stem(path)}_{path.suffix.lstrip('.')}")) if path.suffix else str(path)
            for path in nested
        ],
    )
    for longer in candidates:
        counts = Counter(name.casefold() for name in names)
        names = [new if counts[name.casefold()] > 1 else name for name, new in zip(names, longer, strict=True)]
    return tuple(_number_repeats(names))


def write_json(path: Path, records: Iterable[dict[str, Any]]) -> Path:
    """Write records as a JSON list, one record a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(record, ensure_ascii=False, allow_nan=False) for record in records)
    path.write_text(f"[\n{lines}\n]\n" if lines else "[]\n", encoding="utf-8")
    return path


def write_yolo(directory: Path, stem: str, lines: Sequence[str]) -> Path:
    """Write ``<directory>/<stem>.txt``; an empty file says that the picture was seen and nothing found."""
    path = directory / f"{stem}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def _shape_fields(detections: Detections, row: int) -> dict[str, Any]:
    """What one detection has beside its box."""
    fields: dict[str, Any] = {}
    if detections.masks is not None:
        mask = detections.masks[row]
        fields["segmentation"] = mask.as_json()
        fields["polygons"] = [ring.points.ravel().tolist() for ring in outline(mask.decode()) if not ring.hole]
    if detections.keypoints is not None:
        fields["keypoints"] = detections.keypoints[row].ravel().tolist()
    if detections.rotated is not None:
        fields["rotated"] = detections.rotated[row].tolist()
    return fields


def _yolo_numbers(detections: Detections, row: int, size: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers between class and confidence on the line of one detection."""
    if detections.masks is not None:
        return (_one_line(outline(detections.masks[row].decode())) / size).ravel()
    if detections.rotated is not None:
        return (corners(detections.rotated[row]) / size).ravel()
    low, high = detections.boxes[row].astype(np.float64).reshape(2, 2)
    box = np.concatenate([(low + high) / 2 / size, (high - low) / size])
    if detections.keypoints is None:
        return box
    points = detections.keypoints[row].astype(np.float64) / np.append(size, 1.0)
    return np.concatenate([box, points.ravel()])


def _one_line(rings: Sequence[Ring]) -> NDArray[np.float64]:
    """(P, 2) rings as one: each of the others is reached from the first point of the first one, and left to it."""
    if len(rings) < 2:
        return rings[0].points if rings else np.zeros((0, 2))
    first = rings[0].points
    others = [part for ring in rings[1:] for part in (ring.points, ring.points[:1], first[:1])]
    return np.concatenate([first, first[:1], *others])


def _stem(path: PurePath) -> str:
    """Name without the suffix; all of it where only dots would be left, which name a folder."""
    return path.stem if path.stem.strip(".") else path.name


def _below_common_folder(paths: Sequence[PurePath]) -> list[PurePath]:
    """Drop the folders that all paths share, a root, and ``..``, which would lead out of the output folder."""
    folders = [path.parts[:-1] for path in paths]
    shared = 0
    while folders and all(len(parts) > shared and parts[shared] == folders[0][shared] for parts in folders):
        shared += 1
    return [PurePath(*(part for part in path.parts[shared:] if part not in (path.anchor, ".."))) for path in paths]


def _number_repeats(names: Sequence[str]) -> list[str]:
    """Append ``_2``, ``_3``, ... to names that are taken."""
    taken = {name.casefold() for name in names}
    used: set[str] = set()
    result = []
    for name in names:
        unique, number = name, 1
        while unique.casefold() in used or (number > 1 and unique.casefold() in taken):
            number += 1
            unique = f"{name}_{number}"
        used.add(unique.casefold())
        result.append(unique)
    return result
