"""From parsed objects to the columns of a split: boxes are cleaned the same way for every format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import KeypointSpec, LabelKind, Labels
from lucid_yolo.data.readers.problems import LabelError, counted, some

_BOX = ("box", "boxes")
_NOUNS = {LabelKind.POLYGONS: ("box or outline", "boxes or outlines")}  # corners on a line have no size either
_OVERHANG = 0.5  # pixels: a box that reaches out by less is rounding, clipped without a word


@dataclass(slots=True)
class ObjectRows:
    """Objects in the order of the file.

    Attributes:
        image: position of each object's image.
        boxes: xyxy in pixels of the displayed picture.
        classes: labels.
        crowd: regions of many objects.
        areas: square pixels, NaN where the file has none.
        keys: what names an object in its file: annotation id or line number.
        labels: as the parser of their kind made them.
    """

    image: list[int] = field(default_factory=list)
    boxes: list[tuple[float, float, float, float]] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)
    crowd: list[bool] = field(default_factory=list)
    areas: list[float] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    labels: list[Any] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.image)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFacts:
    """The part of a split that is not objects; fields as in :class:`SplitIndex`.

    Attributes:
        labels: what is read of an object beside its box and class.
        ignored: what the format calls an object that is ``crowd``.
    """

    name: str
    source: str
    class_names: tuple[str, ...]
    category_ids: tuple[int, ...]
    paths: tuple[str, ...]
    image_ids: NDArray[np.int64]
    sizes: NDArray[np.int32]
    keypoints: KeypointSpec | None = None
    labels: LabelKind = LabelKind.BOXES
    ignored: str = "crowd region"


def build_index(
    facts: SplitFacts,
    rows: ObjectRows,
    *,
    where: Callable[[int, int], str],
    pack: Callable[[Sequence[Any]], Labels | None],
    notes: Sequence[str] = (),
) -> SplitIndex:
    """Clean the boxes, sort the objects by image and count what a user should know.

    Boxes without area are dropped, boxes outside their picture too, boxes partly outside are clipped (corners of
    rotated boxes stay as they are); each is noted. An outline without area comes here as such a box.

    Args:
        facts: images and classes.
        rows: objects as parsed, all numbers finite, no negative sides.
        where: name of an object for a note, from the position of its image and its key.
        pack: makes the labels of the split.
        notes: what the reader itself has to say.

    Raises:
        LabelError: no object that could be learned is left.
    """
    image = np.asarray(rows.image, np.int64)
    raw = np.asarray(rows.boxes, np.float64).reshape(-1, 4)
    limits = facts.sizes[image][:, [0, 1, 0, 1]].astype(np.float64)
    clipped = np.clip(raw, 0.0, limits)
    empty = (raw[:, 2:] <= raw[:, :2]).any(axis=1)
    outside = ~empty & (clipped[:, 2:] <= clipped[:, :2]).any(axis=1)
    cut = ~empty & ~outside & (np.abs(clipped - raw) > _OVERHANG).any(axis=1)
    all_notes = list(notes)
    noun = _NOUNS.get(facts.labels, _BOX)
    for chosen, nouns, what, remedy in (
        (empty, noun, "of zero size dropped", "; give each a width and a height, or remove it"),
        (outside, _BOX, "wholly outside the picture dropped", "; move each into its picture, or remove it"),
        (cut & (facts.labels is not LabelKind.CORNERS), _BOX, "partly outside the picture clipped", ""),
    ):
        positions = np.flatnonzero(chosen)
        if len(positions):
            names = some(where(rows.image[i], rows.keys[i]) for i in positions.tolist())
            all_notes.append(f"{counted(len(positions), *nouns)} {what}: {names}{remedy}")
    kept = np.flatnonzero(~empty & ~outside)
    kept = kept[np.argsort(image[kept], kind="stable")]
    crowd = np.asarray(rows.crowd, bool)[kept]
    if not (~crowd).any():
        raise LabelError(_nothing_to_learn(facts, len(rows), len(kept), all_notes), images=facts.paths)
    per_image = np.bincount(image[kept], minlength=len(facts.paths))
    boxes = clipped[kept]
    areas = np.asarray(rows.areas, np.float64)[kept]
    box_areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    classes = np.asarray(rows.classes, np.int64)[kept]
    ignored = {(rows.image[i], rows.keys[i]) for i in kept[crowd].tolist()}
    all_notes += _count_notes(facts, per_image, classes, crowd, ignored=len(ignored))
    return SplitIndex(
        name=facts.name,
        source=facts.source,
        class_names=facts.class_names,
        category_ids=facts.category_ids,
        paths=facts.paths,
        image_ids=facts.image_ids,
        sizes=facts.sizes,
        offsets=np.concatenate(([0], np.cumsum(per_image))).astype(np.int64),
        boxes=boxes.astype(np.float32),
        classes=classes,
        crowd=crowd,
        areas=np.where(np.isnan(areas), box_areas, areas).astype(np.float32),
        labels=pack([rows.labels[i] for i in kept.tolist()]),
        keypoints=facts.keypoints,
        notes=tuple(all_notes),
    )


def _nothing_to_learn(facts: SplitFacts, parsed: int, kept: int, notes: Sequence[str]) -> str:
    message = (
        f"{facts.source}: the {facts.name} split has {counted(len(facts.paths), 'image')} but no object to learn from"
    )
    if parsed:
        message += f" ({counted(parsed, 'object')} read, {kept} of them usable, all of those crowd regions)"
    return "; ".join([message, *notes])


def _count_notes(
    facts: SplitFacts,
    per_image: NDArray[np.int64],
    classes: NDArray[np.int64],
    crowd: NDArray[np.bool_],
    *,
    ignored: int,
) -> list[str]:
    notes = []
    if backgrounds := int((per_image == 0).sum()):
        notes.append(f"{backgrounds} of {counted(len(per_image), 'image')} have no objects (backgrounds)")
    if ignored:
        notes.append(f"{counted(ignored, facts.ignored)}: no positives in training, ignored in evaluation")
    present = np.bincount(classes[~crowd], minlength=len(facts.class_names)) > 0
    if absent := [name for name, there in zip(facts.class_names, present, strict=True) if not there]:
        notes.append(f"{len(absent)} of {counted(len(present), 'class', 'classes')} have no object: {some(absent)}")
    return notes
