"""Allowed range of every number and the allowed texts of open strings: one table, one row a key."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from lucid_yolo.config.regions import AUTO, GROUP, OPTIONS
from lucid_yolo.config.tasks import TaskName


@dataclass(frozen=True)
class Range:
    """An interval of numbers.

    Attributes:
        low: smallest allowed value, or the bound itself when ``open_low``.
        high: largest allowed value, or the bound itself when ``open_high``; None: no bound.
        open_low: ``low`` itself is not allowed.
        open_high: ``high`` itself is not allowed.
        multiple: the value must be a multiple of this.
    """

    low: float | None = None
    high: float | None = None
    open_low: bool = False
    open_high: bool = False
    multiple: int | None = None

    def __contains__(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        if self.low is not None and (value < self.low or (self.open_low and value == self.low)):
            return False
        if self.high is not None and (value > self.high or (self.open_high and value == self.high)):
            return False
        return self.multiple is None or value % self.multiple == 0

    def __str__(self) -> str:
        words = []
        if self.low is not None:
            words.append(f"{'greater than' if self.open_low else 'at least'} {self.low:g}")
        if self.high is not None:
            words.append(f"{'less than' if self.open_high else 'at most'} {self.high:g}")
        if self.multiple is not None:
            words.append(f"a multiple of {self.multiple}")
        return " and ".join(words) or "a finite number"


FINITE = Range()
COUNT = Range(low=1)
RANK = Range(low=1, high=1_000_000)  # more than any picture has anchors
COUNT_OR_NONE = Range(low=0)
NOT_NEGATIVE = Range(low=0)
POSITIVE = Range(low=0, open_low=True)
SHARE = Range(low=0, high=1)
BELOW_ONE = Range(low=0, high=1, open_high=True)
SEED = Range(low=0, high=2**32 - 1)

RANGES: dict[str, Range] = {
    "task.loss.box": NOT_NEGATIVE,
    "task.loss.cls": NOT_NEGATIVE,
    "task.loss.l1": NOT_NEGATIVE,
    "task.loss.angle": NOT_NEGATIVE,
    "task.loss.alpha_start": SHARE,
    "task.loss.alpha_end": SHARE,
    "task.loss.mask": NOT_NEGATIVE,
    "task.loss.semantic": NOT_NEGATIVE,
    "task.loss.mask_slots_one_to_many": COUNT,
    "task.loss.mask_slots_one_to_one": COUNT,
    "task.loss.rle": NOT_NEGATIVE,
    "task.loss.oks": NOT_NEGATIVE,
    "task.loss.anchors_per_object": COUNT,
    "task.assigner.topk_one_to_many": RANK,
    "task.assigner.topk_one_to_one": RANK,
    "task.assigner.alpha": NOT_NEGATIVE,
    "task.assigner.beta": NOT_NEGATIVE,
    "task.assigner.small_side": NOT_NEGATIVE,
    "task.assigner.small_reference": NOT_NEGATIVE,
    "data.image_size": Range(low=32, multiple=32),
    "data.batch_size": COUNT,
    "data.val_batch_size": COUNT,
    "data.num_workers": COUNT_OR_NONE,
    "data.augment.mosaic": SHARE,
    "data.augment.close_mosaic": COUNT_OR_NONE,
    "data.augment.scale": BELOW_ONE,
    "data.augment.translate": SHARE,
    "data.augment.degrees": Range(low=0, high=180),
    "data.augment.shear": Range(low=0, high=90, open_high=True),
    "data.augment.flip_lr": SHARE,
    "data.augment.flip_ud": SHARE,
    "data.augment.mixup": SHARE,
    "data.augment.hsv_h": SHARE,
    "data.augment.hsv_s": SHARE,
    "data.augment.hsv_v": SHARE,
    "data.recipe.epochs": COUNT,
    "data.recipe.warmup_epochs": NOT_NEGATIVE,
    "data.recipe.val_every": COUNT,
    **{f"data.recipe.by_task.{task}": COUNT for task in TaskName},
    **{f"data.recipe.warmup_by_task.{task}": NOT_NEGATIVE for task in TaskName},
    **{f"data.recipe.pictures_by_task.{task}": COUNT for task in TaskName},
    "model.depth": POSITIVE,
    "model.width": POSITIVE,
    "model.max_channels": COUNT,
    "optimizer.lr": POSITIVE,
    "optimizer.weight_decay": NOT_NEGATIVE,
    "optimizer.warmup_epochs": NOT_NEGATIVE,
    "optimizer.final_lr_ratio": SHARE,
    "optimizer.momentum": BELOW_ONE,
    "optimizer.muon_weight": NOT_NEGATIVE,
    "optimizer.sgd_weight": NOT_NEGATIVE,
    "optimizer.newton_schulz_steps": COUNT,
    "optimizer.beta1": BELOW_ONE,
    "optimizer.beta2": BELOW_ONE,
    "optimizer.eps": POSITIVE,
    "trainer.max_epochs": COUNT,
    "trainer.val_every": COUNT,
    "trainer.devices": COUNT,
    "trainer.accumulate": COUNT,
    "trainer.clip_norm": FINITE,
    "trainer.log_every": COUNT,
    "trainer.max_steps": COUNT,
    "trainer.save_seconds": NOT_NEGATIVE,
    "trainer.patience": COUNT,
    "trainer.ema.decay": BELOW_ONE,
    "trainer.ema.ramp": POSITIVE,
    **{f"{GROUP}.{option}.warmup": COUNT for option in OPTIONS if option != AUTO},
    "capture.step.streams": COUNT,
    "capture.auto.steps": COUNT,
    "capture.auto.timeout": POSITIVE,
    "seed": SEED,
    # the verbs validate, predict, compare and profile
    "batch_size": COUNT,
    "num_workers": COUNT_OR_NONE,
    "confidence": SHARE,
    "tile": Range(low=32),
    "overlap": COUNT_OR_NONE,
    "blocks": COUNT,
    "timeout": POSITIVE,
    "steps": COUNT,
    "warmup": COUNT,
}

ACCELERATORS = ("auto", "cpu", "cuda", "mps")
TEXTS: dict[str, tuple[str, ...]] = {"trainer.accelerator": ACCELERATORS, "accelerator": ACCELERATORS}


def range_problem(key: str, value: Any) -> str | None:
    """Say why a value of the right type is out of range; None when it is fine or the key has no range.

    Args:
        key: dotted key.
        value: number, text or None (None is a matter of types).
    """
    if key in TEXTS and value is not None and str(value) not in TEXTS[key]:
        return f"{value!r} is not one of {', '.join(TEXTS[key])}"
    if key not in RANGES or value is None:
        return None
    return None if float(value) in RANGES[key] else f"{value} is out of range, it must be {RANGES[key]}"
