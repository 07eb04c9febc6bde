"""Further augmentation from Albumentations, as the configuration lists it.

The library is imported when the list is not empty, and never asks the network for its latest version.
"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.config.errors import ConfigError, DataError
from lucid_yolo.data.geometry import MIN_SIDE, MIN_VISIBLE
from lucid_yolo.data.objects import Objects

_PREFIX = "albumentations."
_ROWS = "rows"
_PIXEL_CENTRE = 0.5  # points of Albumentations count from the centre of the first pixel, ours from its corner


class Transforms:
    """All listed transforms in one pipeline over the picture and its objects.

    Args:
        listed: entries like ``{_target_: albumentations.Blur, p: 0.1}``; entries may hold lists of entries under
            ``transforms``, as ``albumentations.OneOf`` does.

    Raises:
        ConfigError: an entry names nothing that Albumentations has, or its settings are refused.
    """

    def __init__(self, listed: Sequence[Any]) -> None:
        self._listed = tuple(listed)
        self._pipeline: Any = None
        self._moves = False
        if self._listed:
            self._build()  # problems are reported before any worker starts

    def __getstate__(self) -> dict[str, Any]:
        """Send the list to workers; each builds the pipeline itself."""
        return {"listed": self._listed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._listed = state["listed"]
        self._pipeline = None
        self._moves = False
        if self._listed:
            self._build()

    def __call__(self, image: NDArray[np.uint8], objects: Objects, *, seed: int) -> tuple[NDArray[np.uint8], Objects]:
        """Transform one sample.

        Args:
            image: (S, S, 3) uint8.
            objects: what is on it.
            seed: of all draws of this sample.

        Returns:
            Image and objects; those that left the canvas are gone.

        Raises:
            DataError: a transform failed, or changed the size or type of the picture.
        """
        if not self._listed:
            return image, objects
        # One stream for the whole pipeline: `set_random_seed` would give every transform the same draws.
        self._pipeline.set_random_state(np.random.default_rng(seed), random.Random(seed))
        if not self._moves:
            return self._checked(self._run(image=image)["image"], image), objects
        labels, corners = objects.labels, _corners(len(image))
        points = corners if labels is None else np.concatenate([corners, labels.points()])
        result = self._run(
            image=image,
            bboxes=objects.boxes.astype(np.float64),
            rows=np.arange(len(objects)),
            keypoints=points - _PIXEL_CENTRE,
        )
        boxes = np.asarray(result["bboxes"], np.float32).reshape(-1, 4)
        rows = np.asarray(result[_ROWS], np.int64).reshape(-1)
        keep = ((boxes[:, 2:] - boxes[:, :2]) >= MIN_SIDE).all(axis=1)
        if labels is not None:
            moved = np.asarray(result["keypoints"], np.float64).reshape(-1, 2) + _PIXEL_CENTRE
            labels = labels.moved(moved[len(corners) :], mirrored=_is_mirrored(moved[: len(corners)])).take(rows)
            settled, stays, labels = labels.settle(boxes.astype(np.float64), len(image))
            boxes, keep = settled.astype(np.float32), keep & stays
            labels = labels.take(np.flatnonzero(keep))
        return self._checked(result["image"], image), Objects(boxes[keep], objects.classes[rows[keep]], labels)

    def _run(self, **data: Any) -> Any:
        try:
            return self._pipeline(**data)
        except Exception as error:  # Albumentations has no base class of its own for what goes wrong in it
            raise DataError(
                f"data.augment.transforms fails on a sample: {error}; change or remove that transform"
            ) from error

    def _build(self) -> None:
        os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
        import albumentations  # noqa: PLC0415  (seconds; most runs list nothing)

        transforms = [_build_entry(albumentations, entry, f"[{i}]") for i, entry in enumerate(self._listed)]
        self._moves = not all(_only_pixels(albumentations, one) for one in transforms)
        boxes = albumentations.BboxParams(
            format="pascal_voc", label_fields=[_ROWS], min_visibility=MIN_VISIBLE, clip=True
        )
        points = albumentations.KeypointParams(format="xy", remove_invisible=False)
        self._pipeline = albumentations.Compose(
            transforms,
            bbox_params=boxes if self._moves else None,
            keypoint_params=points if self._moves else None,
        )

    def _checked(self, image: NDArray[Any], before: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if image.shape != before.shape or image.dtype != np.uint8:
            raise DataError(
                f"data.augment.transforms turns a {before.shape} uint8 picture into {image.shape} {image.dtype}; "
                "transforms must keep size and type: remove those that resize, crop or normalize"
            )
        return np.ascontiguousarray(image)


def _corners(size: int) -> NDArray[np.float64]:
    """Three corners of the canvas, which go through the transforms to tell whether these mirror it."""
    return np.array([[0.0, 0.0], [size, 0.0], [0.0, size]])


def _is_mirrored(corners: NDArray[np.float64]) -> bool:
    """Whether the turn from the first to the second side of the canvas has changed its direction."""
    right, down = corners[1:] - corners[0]
    return bool(right[0] * down[1] - right[1] * down[0] < 0)


def _only_pixels(library: Any, transform: Any) -> bool:
    """Whether boxes need not travel along: carrying them costs time though they stay where they are."""
    if isinstance(transform, library.BaseCompose):
        return all(_only_pixels(library, one) for one in transform.transforms)
    return isinstance(transform, library.ImageOnlyTransform)


def _build_entry(library: Any, entry: Any, where: str) -> Any:
    """Build one transform, and those inside it."""
    key = f"data.augment.transforms{where}"
    if not isinstance(entry, Mapping) or not str(entry.get("_target_", "")).startswith(_PREFIX):
        raise ConfigError([f"{key} is {entry!r}; an entry looks like {{_target_: albumentations.Blur, p: 0.1}}"])
    name = str(entry["_target_"])[len(_PREFIX) :]
    factory = getattr(library, name, None)
    if not isinstance(factory, type) or not issubclass(factory, library.BasicTransform | library.BaseCompose):
        raise ConfigError([f"{key} names {_PREFIX}{name}, and Albumentations has no such transform"])
    settings = {name: value for name, value in entry.items() if name != "_target_"}
    if "transforms" in settings:
        inner = enumerate(settings["transforms"])
        settings["transforms"] = [_build_entry(library, one, f"{where}.transforms[{i}]") for i, one in inner]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # an unknown setting is only a warning there
            return factory(**settings)
    except (TypeError, ValueError, UserWarning) as error:
        raise ConfigError([f"{key}: {_PREFIX}{name} refuses its settings: {_reason(error)}"]) from None


def _reason(error: Exception) -> str:
    """What a constructor says, in one line: settings are checked by pydantic, which writes several and a link."""
    return " ".join(line.strip() for line in str(error).splitlines() if "https://" not in line)
