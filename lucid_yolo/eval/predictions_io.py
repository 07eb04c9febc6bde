"""Detections as files: JSON records and YOLO text, one name a source picture."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from lucid_yolo.eval.columns import to_xywh
from lucid_yolo.ops.detections import Detections


def detection_records(
    file_name: str, detections: Detections, class_names: Sequence[str], category_ids: Sequence[int]
) -> list[dict[str, Any]]:
    """Detections of one picture as plain records: file, class, score, and left, top, width, height in pixels.

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
        }
        for label, score, box in zip(*columns, strict=True)
    ]


def yolo_lines(detections: Detections, *, width: int, height: int) -> list[str]:
    """Detections of one picture as YOLO text: class, centre, width, height (shares of the picture), confidence."""
    boxes = to_xywh(detections.boxes)
    boxes[:, :2] += boxes[:, 2:] / 2
    boxes /= np.array([width, height, width, height], np.float64)
    return [
        f"{label} " + " ".join(f"{value:.6f}" for value in box) + f" {score:.6f}"
        for label, box, score in zip(
            detections.classes.tolist(), boxes.tolist(), detections.scores.tolist(), strict=True
        )
    ]


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
    names = [path.stem for path in paths]
    nested = _below_common_folder(paths)
    candidates = (
        [str(path.with_suffix("")) for path in nested],
        [
            str(path.with_name(f"{path.stem}_{path.suffix.lstrip('.')}")) if path.suffix else str(path)
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
