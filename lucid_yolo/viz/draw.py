"""Boxes with labels on a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from lucid_yolo.ops.detections import Detections
from lucid_yolo.viz.style import class_color, class_name, shorten, text_color

Picture = NDArray[np.uint8]
"""(H, W, 3) RGB."""

FONT = cv2.FONT_HERSHEY_SIMPLEX
_NAME_LIMIT = 24
_REGION_OPACITY = 0.25
_JPEG_QUALITY = 92


@dataclass(frozen=True, slots=True)
class Pen:
    """Widths in pixels that suit a picture's size."""

    line: int
    text_scale: float
    text_width: int
    pad: int

    @classmethod
    def for_size(cls, width: int, height: int) -> Pen:
        """Lines of 4 per mille and text of 2 % of the picture's mean side, within what can be read."""
        side = (width * height) ** 0.5
        scale = min(max(side / 1250, 0.4), 2.5)
        return cls(
            line=max(1, round(side * 0.004)), text_scale=scale, text_width=1 + int(scale > 0.7), pad=round(7 * scale)
        )


def draw_detections(picture: Picture, detections: Detections, class_names: Sequence[str]) -> Picture:
    """Draw detections with class and score on a copy of a picture.

    Args:
        picture: (H, W, 3) uint8 RGB.
        detections: pixels of this picture, best first.
        class_names: one name a class.
    """
    texts = [
        f"{_label(label, class_names)} {score:.2f}"
        for label, score in zip(detections.classes.tolist(), detections.scores.tolist(), strict=True)
    ]
    return draw_boxes(picture, detections.boxes, detections.classes, texts)


def draw_objects(
    picture: Picture,
    boxes: NDArray[np.floating],
    classes: NDArray[np.integer],
    class_names: Sequence[str],
    *,
    crowd: NDArray[np.bool_] | None = None,
) -> Picture:
    """Draw labelled objects on a copy of a picture; crowds are tinted regions.

    Args:
        picture: (H, W, 3) uint8 RGB.
        boxes: (N, 4) xyxy, pixels of this picture.
        classes: (N,) labels.
        class_names: one name a class.
        crowd: (N,) which of them are crowds; None: none.
    """
    regions = np.zeros(len(boxes), bool) if crowd is None else crowd
    texts = [
        _label(label, class_names) + (" (crowd)" if region else "")
        for label, region in zip(classes.tolist(), regions.tolist(), strict=True)
    ]
    return draw_boxes(picture, boxes, classes, texts, regions=regions)


def draw_boxes(
    picture: Picture,
    boxes: NDArray[np.floating],
    classes: NDArray[np.integer],
    texts: Sequence[str],
    *,
    regions: NDArray[np.bool_] | None = None,
) -> Picture:
    """Draw boxes, then their texts where there is room.

    The first box lies on top. Its text goes above it, else inside, else below; a text that would cover another one is
    left out, the color still names the class.

    Args:
        picture: (H, W, 3) uint8 RGB.
        boxes: (N, 4) xyxy, pixels of this picture; what is not finite is skipped.
        classes: (N,) labels.
        texts: (N,) one text a box, "" for none.
        regions: (N,) boxes to tint.

    Returns:
        A new (H, W, 3) uint8 RGB picture.
    """
    canvas = np.ascontiguousarray(picture).copy()
    height, width = canvas.shape[:2]
    pen = Pen.for_size(width, height)
    usable = np.flatnonzero(np.isfinite(boxes).all(axis=1)).tolist()
    corners = np.zeros((len(boxes), 4), np.int64)
    corners[usable] = np.rint(boxes[usable]).clip(0, [width - 1, height - 1] * 2)
    for i in reversed(usable):
        left, top, right, bottom = corners[i].tolist()
        color = class_color(int(classes[i]))
        if regions is not None and regions[i]:
            part = canvas[top : bottom + 1, left : right + 1]
            tint = _REGION_OPACITY * np.array(color)
            part[:] = (part * (1 - _REGION_OPACITY) + tint).round().astype(np.uint8)
        cv2.rectangle(canvas, (left, top), (right, bottom), color, pen.line)
    taken: list[tuple[int, int, int, int]] = []
    for i in usable:
        if texts[i]:
            _draw_text(canvas, texts[i], corners[i].tolist(), class_color(int(classes[i])), pen, taken)
    return canvas


def save_picture(picture: Picture, path: Path) -> Path:
    """Write an RGB picture; the suffix (.png, .jpg) decides the format. Makes the folder.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    parameters = [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY] if path.suffix.lower() in (".jpg", ".jpeg") else []
    _, data = cv2.imencode(path.suffix, cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), parameters)
    path.write_bytes(data.tobytes())
    return path


def _label(label: int, class_names: Sequence[str]) -> str:
    return shorten(class_name(label, class_names), _NAME_LIMIT)


def _draw_text(
    canvas: Picture,
    text: str,
    box: Sequence[int],
    color: tuple[int, int, int],
    pen: Pen,
    taken: list[tuple[int, int, int, int]],
) -> None:
    """Write a text on a plate of its color at the first free place at its box, and note the place as taken."""
    (width, height), baseline = cv2.getTextSize(text, FONT, pen.text_scale, pen.text_width)
    plate_width, plate_height = width + 2 * pen.pad, height + baseline + pen.pad
    left, top, _, bottom = box
    x = max(0, min(left - pen.line // 2, canvas.shape[1] - plate_width))
    for y in (top - plate_height, top, bottom):
        place = (x, y, x + plate_width, y + plate_height)
        if y >= 0 and place[3] <= canvas.shape[0] and not any(_overlap(place, other) for other in taken):
            cv2.rectangle(canvas, place[:2], (place[2] - 1, place[3] - 1), color, cv2.FILLED)
            origin = (x + pen.pad, y + pen.pad // 2 + height)
            cv2.putText(canvas, text, origin, FONT, pen.text_scale, text_color(color), pen.text_width, cv2.LINE_AA)
            taken.append(place)
            return


def _overlap(a: tuple[int, int, int, int], b: tuple[int, int, int, int]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
