"""Boxes and shapes with labels on a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.rotated_np import corners
from lucid_yolo.viz.shapes import NO_SHAPES, Shapes, detection_shapes
from lucid_yolo.viz.style import Color, class_color, class_name, shorten, text_color

Picture = NDArray[np.uint8]
"""(H, W, 3) RGB."""

Skeleton = Sequence[tuple[int, int]]
"""Pairs of positions of key points."""

FONT = cv2.FONT_HERSHEY_SIMPLEX
_NAME_LIMIT = 24
_REGION_OPACITY = 0.25
_MASK_OPACITY = 0.4
_POINT_SCORE = 0.5
_FAR = 1_000_000
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


def draw_detections(
    picture: Picture,
    detections: Detections,
    class_names: Sequence[str],
    *,
    skeleton: Skeleton = (),
    scale: float = 1.0,
) -> Picture:
    """Draw detections with class and score, and whatever shapes they have, on a copy of a picture.

    Args:
        picture: (H, W, 3) uint8 RGB.
        detections: best first.
        class_names: one name a class.
        skeleton: pairs of key points that a line joins.
        scale: pixels of this picture a pixel of that which the detections are of.
    """
    texts = [
        f"{_label(label, class_names)} {score:.2f}"
        for label, score in zip(detections.classes.tolist(), detections.scores.tolist(), strict=True)
    ]
    shapes = detection_shapes(detections).scaled(scale)
    boxes = detections.boxes.astype(np.float64) * scale
    return draw_boxes(picture, boxes, detections.classes, texts, shapes=shapes, skeleton=skeleton)


def draw_objects(
    picture: Picture,
    boxes: NDArray[np.floating],
    classes: NDArray[np.integer],
    class_names: Sequence[str],
    *,
    crowd: NDArray[np.bool_] | None = None,
    shapes: Shapes = NO_SHAPES,
    skeleton: Skeleton = (),
) -> Picture:
    """Draw labelled objects on a copy of a picture; crowds are tinted regions.

    Args:
        picture: (H, W, 3) uint8 RGB.
        boxes: (N, 4) xyxy, pixels of this picture.
        classes: (N,) labels.
        class_names: one name a class.
        crowd: (N,) which of them are crowds; None: none.
        shapes: what they have beside boxes.
        skeleton: pairs of key points that a line joins.
    """
    regions = np.zeros(len(boxes), bool) if crowd is None else crowd
    texts = [
        _label(label, class_names) + (" (crowd)" if region else "")
        for label, region in zip(classes.tolist(), regions.tolist(), strict=True)
    ]
    return draw_boxes(picture, boxes, classes, texts, regions=regions, shapes=shapes, skeleton=skeleton)


def draw_boxes(
    picture: Picture,
    boxes: NDArray[np.floating],
    classes: NDArray[np.integer],
    texts: Sequence[str],
    *,
    regions: NDArray[np.bool_] | None = None,
    shapes: Shapes = NO_SHAPES,
    skeleton: Skeleton = (),
) -> Picture:
    """Draw boxes and shapes, then their texts where there is room.

    The first object lies on top. Its text goes above its box, else inside, else below; a text that would cover another
    one is left out, the color still names the class. A mask is tinted and has a contour, a key point is drawn when its
    score is at least one half, a rotated box stands in the place of the upright one.

    Args:
        picture: (H, W, 3) uint8 RGB.
        boxes: (N, 4) xyxy, pixels of this picture; what is not finite is skipped.
        classes: (N,) labels.
        texts: (N,) one text a box, "" for none.
        regions: (N,) boxes to tint, where there are no masks to tint.
        shapes: what the objects have beside boxes.
        skeleton: pairs of key points that a line joins.

    Returns:
        A new (H, W, 3) uint8 RGB picture.
    """
    canvas = np.ascontiguousarray(picture).copy()
    height, width = canvas.shape[:2]
    pen = Pen.for_size(width, height)
    outlines = None if shapes.rotated is None else corners(shapes.rotated)
    finite = np.isfinite(boxes).all(axis=1)
    if outlines is not None:
        finite &= np.isfinite(outlines).all(axis=(1, 2))
    usable = np.flatnonzero(finite).tolist()
    upright = np.zeros((len(boxes), 4), np.int64)
    upright[usable] = np.rint(boxes[usable]).clip(0, [width - 1, height - 1] * 2)
    for i in reversed(usable):
        left, top, right, bottom = upright[i].tolist()
        color = class_color(int(classes[i]))
        if shapes.masks is not None:
            draw_mask(canvas, shapes.masks[i].decode(), color, pen)
        elif regions is not None and regions[i]:
            _tint(canvas[top : bottom + 1, left : right + 1], color, _REGION_OPACITY)
        if outlines is None:
            cv2.rectangle(canvas, (left, top), (right, bottom), color, pen.line)
        else:
            cv2.polylines(canvas, [_pixels(outlines[i])], True, color, pen.line, cv2.LINE_AA)
        if shapes.keypoints is not None:
            draw_points(canvas, shapes.keypoints[i], skeleton, color, pen)
    taken: list[tuple[int, int, int, int]] = []
    for i in usable:
        if texts[i]:
            _draw_text(canvas, texts[i], upright[i].tolist(), class_color(int(classes[i])), pen, taken)
    return canvas


def draw_mask(canvas: Picture, mask: NDArray[np.bool_], color: Color, pen: Pen) -> None:
    """Tint a mask and draw its contour, in place.

    Args:
        canvas: (H, W, 3) uint8 RGB.
        mask: of the whole picture, of any size.
        color: of its class.
        pen: widths of lines.
    """
    height, width = canvas.shape[:2]
    if mask.shape != (height, width):
        shrinks = height < mask.shape[0] or width < mask.shape[1]
        interpolation = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
        mask = cv2.resize(mask.astype(np.uint8) * 255, (width, height), interpolation=interpolation) >= 128
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return
    top, left = int(rows[0]), int(columns[0])
    part = mask[top : rows[-1] + 1, left : columns[-1] + 1]
    window = canvas[top : rows[-1] + 1, left : columns[-1] + 1]
    tinted = window.copy()
    _tint(tinted, color, _MASK_OPACITY)
    np.copyto(window, tinted, where=part[..., None])
    contours, _ = cv2.findContours(part.astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
    cv2.drawContours(canvas, contours, -1, color, max(1, pen.line // 2), offset=(left, top))


def draw_points(canvas: Picture, keypoints: NDArray[np.floating], skeleton: Skeleton, color: Color, pen: Pen) -> None:
    """Draw the key points of an object and the lines between them, in place.

    Args:
        canvas: (H, W, 3) uint8 RGB.
        keypoints: (K, 3) x, y, score; those that score less than one half are left out, with their lines.
        skeleton: pairs of positions that a line joins.
        color: of the object's class.
        pen: widths of lines.
    """
    shown = np.isfinite(keypoints).all(axis=1) & (keypoints[:, 2] >= _POINT_SCORE)
    places = _pixels(np.where(shown[:, None], keypoints[:, :2], 0.0)).tolist()
    for first, second in skeleton:
        if shown[first] and shown[second]:
            cv2.line(canvas, places[first], places[second], color, pen.line, cv2.LINE_AA)
    radius = max(2, round(1.5 * pen.line))
    for i in np.flatnonzero(shown).tolist():
        cv2.circle(canvas, places[i], radius + max(1, pen.line // 3), text_color(color), cv2.FILLED, cv2.LINE_AA)
        cv2.circle(canvas, places[i], radius, color, cv2.FILLED, cv2.LINE_AA)


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


def _tint(part: Picture, color: Color, opacity: float) -> None:
    """Mix a color into a part of a picture, in place."""
    part[:] = (part * (1 - opacity) + opacity * np.array(color)).round().astype(np.uint8)


def _pixels(points: NDArray[np.floating]) -> NDArray[np.int32]:
    """Points as OpenCV draws them, (..., 2); far outside of any picture they stop, short of an overflow."""
    return np.asarray(np.rint(points).clip(-_FAR, _FAR), np.int32)


def _label(label: int, class_names: Sequence[str]) -> str:
    return shorten(class_name(label, class_names), _NAME_LIMIT)


def _draw_text(
    canvas: Picture,
    text: str,
    box: Sequence[int],
    color: Color,
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
