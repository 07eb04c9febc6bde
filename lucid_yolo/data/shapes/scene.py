"""Scenes: which shapes lie where, and the picture of them."""

from __future__ import annotations

import colorsys
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.data.shapes.draws import Draws
from lucid_yolo.data.shapes.geometry import CLASS_NAMES, Shape, bar, disc, make_shape
from lucid_yolo.data.shapes.raster import Canvas, coverage, paint

_SMALLEST, _LARGEST = 14 / 160, 48 / 160  # radius, of the picture's shorter side, where there are ...
_USUAL_OBJECTS = 5  # ... at most so many: more of them are smaller, so that they cover as much of the ground
_MAX_HIDDEN = 0.2  # share of an object that later ones may cover
_TRIES = 40  # places tried for one object before it is left out
_CONTRAST = 150.0  # least sum of absolute channel differences between an object and the ground
_HUE_SPREAD = 0.1  # of a class, to both sides, in turns of the colour circle
_OCTAVES = ((3, 16.0), (9, 9.0), (40, 5.0))  # cells a side and amplitude of the ground's texture

Frame = tuple[int, int]  # height and width in pixels


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture and what is on it.

    Attributes:
        image: (H, W, 3) uint8 RGB.
        shapes: the objects, from back to front, each whole inside the picture.
        visible: (N, 3) whether each key point is covered by no later object.
    """

    image: NDArray[np.uint8]
    shapes: tuple[Shape, ...]
    visible: NDArray[np.bool_]


def draw_scene(
    key: tuple[int, ...], *, size: int, height: int | None = None, max_objects: int = _USUAL_OBJECTS
) -> Scene:
    """Draw the scene that a key names.

    Args:
        key: seed, split and number of the picture; beside the other arguments nothing has an influence.
        size: side of the picture in pixels, its width where the height is given.
        height: of a picture that is not square.
        max_objects: one to so many objects are drawn, as far as there is room.
    """
    frame = (size if height is None else height, size)
    draws = Draws(*key)
    ground = draws.uniform(70.0, 190.0) + draws.uniforms(3, -20.0, 20.0)  # nearly gray
    canvas = _texture(draws, frame)
    canvas += ground.astype(np.float32)
    _clutter(draws, canvas, ground)
    shapes = _place(draws, frame, max_objects)
    for shape in shapes:
        colour = _class_colour(draws, shape.label, ground)
        paint(canvas, shape.outline, colour)
        _mark(canvas, shape, colour)
    image = np.clip(np.rint(canvas), 0, 255).astype(np.uint8)
    return Scene(image, tuple(shapes), _visible_keypoints(shapes, frame))


def _texture(draws: Draws, frame: Frame) -> Canvas:
    """(H, W, 3) smooth noise around zero: grids of random values, interpolated bilinearly, from coarse to fine."""
    total = np.zeros((*frame, 3), np.float32)
    for cells, amplitude in _OCTAVES:
        grid = draws.uniforms((cells + 1) ** 2 * 3, -amplitude, amplitude).astype(np.float32)
        grid = grid.reshape(cells + 1, cells + 1, 3)
        for length in frame:  # along one axis, then along the other
            place = (np.arange(length) + 0.5) * (cells / length)
            low = np.floor(place).astype(int)
            share = (place - low).astype(np.float32)[:, None, None]
            step = grid[low + 1] - grid[low]
            step *= share
            step += grid[low]
            grid = np.ascontiguousarray(step.transpose(1, 0, 2))
        total += grid
    return total


def _clutter(draws: Draws, canvas: Canvas, ground: NDArray[np.float64]) -> None:
    """Lines and blobs that are no objects: thinner and smaller than any object, and paler."""
    corner = np.array((canvas.shape[1], canvas.shape[0]), np.float64)
    unit = float(corner.min()) / 160
    for _ in range(draws.integer(1, 5)):
        x1, y1, x2, y2 = draws.uniforms(4) * (*corner, *corner)
        colour = ground + 0.35 * (draws.uniforms(3, 0.0, 255.0) - ground)
        paint(canvas, bar((x1, y1), (x2, y2), unit * draws.uniform(1.0, 2.5)), colour)
    for _ in range(draws.integer(2, 7)):
        x, y = draws.uniforms(2) * corner
        colour = ground + 0.35 * (draws.uniforms(3, 0.0, 255.0) - ground)
        paint(canvas, disc((x, y), unit * draws.uniform(1.5, 4.5)), colour)


def _place(draws: Draws, frame: Frame, max_objects: int) -> list[Shape]:
    """Objects whole inside the picture, none hidden by more than ``_MAX_HIDDEN``."""
    shapes: list[Shape] = []
    hidden = np.zeros((0, *frame), dtype=bool)  # what later objects cover of the picture, for each object
    masks = np.zeros((0, *frame), dtype=bool)
    side = min(frame) * math.sqrt(min(1.0, _USUAL_OBJECTS / max_objects))
    wanted = 1 + draws.integer(0, max_objects)
    label = draws.integer(0, len(CLASS_NAMES))
    for _ in range(wanted):
        for _ in range(_TRIES):
            shape = _random_shape(draws, label, frame, side)
            if shape is None:
                continue
            mask = object_mask(shape, frame)
            covered = hidden | mask
            if ((covered & masks).sum(axis=(1, 2)) <= _MAX_HIDDEN * masks.sum(axis=(1, 2))).all():
                shapes.append(shape)
                masks = np.concatenate((masks, mask[None]))
                hidden = np.concatenate((covered, np.zeros_like(mask[None])))
                break
        label = (label + draws.integer(1, len(CLASS_NAMES) + 1)) % len(CLASS_NAMES)
    return shapes


def _random_shape(draws: Draws, label: int, frame: Frame, side: float) -> Shape | None:
    """A shape at a random place, None where it would leave the picture."""
    spread = math.log(_LARGEST / _SMALLEST)
    radius = round(side * _SMALLEST * math.exp(spread * draws.uniform()), 1)
    corner = np.array((frame[1], frame[0]), np.float64)
    low, high = 0.5 * radius, corner - 0.5 * radius
    x, y = (round(float(v), 1) for v in low + (high - low) * draws.uniforms(2))
    aspect, angle = draws.uniform(0.65, 1.0), draws.uniform(0.0, 2.0 * math.pi)
    shape = make_shape(label, center=(x, y), radius=radius, aspect=aspect, angle=angle)
    inside = shape.outline.min() >= 1.0 and bool((shape.outline.max(axis=0) <= corner - 1.0).all())
    return shape if inside else None


def object_mask(shape: Shape, frame: Frame) -> NDArray[np.bool_]:
    """(H, W) pixels of which the whole object, hidden parts included, covers at least half."""
    share, left, top = coverage(shape.outline, frame)
    mask = np.zeros(frame, dtype=bool)
    mask[top : top + share.shape[0], left : left + share.shape[1]] = share >= 0.5
    return mask


def _class_colour(draws: Draws, label: int, ground: NDArray[np.float64]) -> NDArray[np.float64]:
    """A strong colour around the hue of a class, as fruit or road signs have one, that stands out from the ground."""
    best, best_distance = ground, -1.0
    for _ in range(_TRIES):
        turn = label / len(CLASS_NAMES) + draws.uniform(-_HUE_SPREAD, _HUE_SPREAD)
        saturation, value = draws.uniform(0.6, 1.0), draws.uniform(0.55, 1.0)
        colour = 255.0 * np.array(colorsys.hsv_to_rgb(turn % 1.0, saturation, value))
        distance = float(np.abs(colour - ground).sum())
        if distance >= _CONTRAST:
            return colour
        if distance > best_distance:
            best, best_distance = colour, distance
    return best


def _mark(canvas: Canvas, shape: Shape, colour: NDArray[np.float64]) -> None:
    """Draw head (large) and tail (small) as dots, so that an object's direction can be seen."""
    dot = np.full(3, 0.0 if colour.sum() > 382.0 else 255.0)
    ink = colour + 0.7 * (dot - colour)
    center, head, tail = shape.keypoints
    length = float(np.abs(head - center).sum())
    paint(canvas, disc((head[0], head[1]), max(1.0, round(0.22 * length, 2))), ink)
    paint(canvas, disc((tail[0], tail[1]), max(0.8, round(0.12 * length, 2))), ink)


def _visible_keypoints(shapes: list[Shape], frame: Frame) -> NDArray[np.bool_]:
    visible = np.ones((len(shapes), 3), dtype=bool)
    for front, shape in enumerate(shapes):
        mask = object_mask(shape, frame)
        for back in range(front):
            x, y = shapes[back].keypoints.astype(int).T
            visible[back] &= ~mask[y, x]
    return visible
