"""The embedded set of drawn shapes, made on first use."""

from __future__ import annotations

from dataclasses import asdict, replace

from lucid_yolo.config.errors import ConfigError, DataError
from lucid_yolo.config.schema import DataConfig
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import LabelKind
from lucid_yolo.data.readers.coco import read_annotations
from lucid_yolo.data.readers.settings import SPLITS, Split, check_options
from lucid_yolo.data.shapes.cache import ShapesSpec, annotation_file, ensure_shapes, image_folder

_LEAST = {"num_train": 1, "num_val": 1, "image_size": 64, "image_height": 0, "max_objects": 1, "seed": 0}
_PATH_KEYS = ("root", "train", "val", "test", "train_images", "val_images", "test_images")


def read(config: DataConfig, split: Split, labels: LabelKind) -> SplitIndex:
    """Read one split of the embedded set; ``data.options``: ``ShapesSpec``.

    Raises:
        ConfigError: an unknown option, a value out of range, or a path that the embedded set has no use for.
        DataError: the cache directory cannot be written, or the split does not exist.
    """
    if split not in SPLITS:
        raise DataError(f"data.format={config.format}: the drawn set has no {split} split; it has {', '.join(SPLITS)}")
    folder = ensure_shapes(_spec(config))
    images = str(image_folder(folder, split))
    located = replace(config, root=str(folder), train_images=images, val_images=images, options={})
    return read_annotations(annotation_file(folder, split), located, split, labels)


def _spec(config: DataConfig) -> ShapesSpec:
    check_options(config, allowed=_LEAST)
    problems = [
        f"data.{key}: the embedded set is drawn into the cache directory and has no use for this key; leave it out"
        for key in _PATH_KEYS
        if getattr(config, key) is not None
    ]
    for key, value in config.options.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < _LEAST[key]:
            problems.append(f"data.options.{key}={value!r}: a whole number of at least {_LEAST[key]} is needed")
    if problems:
        raise ConfigError(problems)
    return ShapesSpec(**{**asdict(ShapesSpec()), **config.options})
