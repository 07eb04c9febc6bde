"""The verb ``validate``: score a checkpoint on a data set, with a report, predictions and pictures.

Predictions are COCO results with the data set's own image and category ids: ``predictions.json`` and, for a further
decoder, its suffix in the name. pycocotools reads them as they are. Masks and key points have their boxes in a file
beside: ``predictions_bbox.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console, ConsoleOptions, RenderResult

from lucid_yolo.bench.notebook import as_text
from lucid_yolo.config.errors import RunError
from lucid_yolo.config.paths import resolve_user_path
from lucid_yolo.config.schema import DataConfig
from lucid_yolo.config.verbs import ValidateConfig
from lucid_yolo.data.image import read_image
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.keypoint_settings import with_keypoints
from lucid_yolo.data.loader import ValLoader
from lucid_yolo.data.readers import read_split
from lucid_yolo.engine.checkpoint import TrainedModel, load_model
from lucid_yolo.engine.device import choose_device
from lucid_yolo.engine.evaluate import Evaluation, evaluate
from lucid_yolo.engine.final import class_table, metrics_table, named_metrics
from lucid_yolo.engine.predict import claim_output
from lucid_yolo.eval.predictions_io import write_json
from lucid_yolo.eval.results import result_types, to_coco_json
from lucid_yolo.tasks.base import Decoder


@dataclass(frozen=True)
class ValidationReport:
    """Scores of a checkpoint.

    Attributes:
        metrics: names as in a run's summary.
        details: per decoder everything that the evaluator gives, plain.
        out: folder of report and pictures; None when nothing was written.
        trained: the model.
        evaluations: by decoder.
        split: of the data set.
    """

    metrics: Mapping[str, float | None]
    details: Mapping[str, Any]
    out: Path | None
    trained: TrainedModel
    evaluations: Mapping[Decoder, Evaluation]
    split: str

    def __str__(self) -> str:
        """Show the same as text."""
        return as_text(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Show the scores by decoder, and those of the first one by class."""
        task, names = self.trained.task, self.trained.info.class_names
        yield metrics_table(f"Averaged weights, {self.split} split", task, self.evaluations)
        if len(names) > 1:
            first = task.decoders[0]
            yield class_table(task, first, self.evaluations[first], names)
        if self.out is not None:
            yield f"Report and pictures: {self.out}"


def validate(config: ValidateConfig) -> ValidationReport:
    """Score a checkpoint in float32 on one split of a data set, with every decoder.

    Raises:
        RunError: the checkpoint cannot be used, its classes or key points are others, or the output folder is taken.
        DataError: the data cannot be read.
    """
    trained = load_model(resolve_user_path(config.checkpoint), device=choose_device(config.accelerator))
    data = _data_config(config, trained)
    index = read_split(data, config.split.value, trained.task.labels)
    _check_classes(index, trained)
    index = _with_keypoints(index, trained)
    out = claim_output(resolve_user_path(config.out)) if config.out is not None else None
    device = next(trained.model.parameters()).device
    task = trained.task
    loader = ValLoader(index, data, num_workers=data.num_workers or 0, pin_memory=False)
    found = evaluate(trained.model, task, task.decoders, loader, index, device=device, precision="32-true")
    metrics = named_metrics(task, found)
    details = {
        d.name: e.metrics.as_dict(index.class_names)
        | {name: asdict(recall) for name, recall in task.recalls(index, e.detections).items()}
        for d, e in found.items()
    }
    if out is not None:
        _write(out, config, index, found, metrics, details, trained)
    return ValidationReport(
        metrics=metrics, details=details, out=out, trained=trained, evaluations=found, split=config.split.value
    )


def _data_config(config: ValidateConfig, trained: TrainedModel) -> DataConfig:
    """The run's data settings with what the user changes; another root forgets the files named in the old one."""
    data = trained.info.data_config()
    if config.root is not None:
        data.root = config.root
        data.train = data.val = data.test = None
        data.train_images = data.val_images = data.test_images = None
    if config.val is not None:
        setattr(data, config.split.value, config.val)
    if config.val_images is not None:
        setattr(data, f"{config.split.value}_images", config.val_images)
    if config.batch_size is not None:
        data.batch_size, data.val_batch_size = config.batch_size, None
    if config.num_workers is not None:
        data.num_workers = config.num_workers
    return data


def _check_classes(index: SplitIndex, trained: TrainedModel) -> None:
    if index.class_names != trained.info.class_names:
        raise RunError(
            f"checkpoint={trained.path} knows the classes {list(trained.info.class_names)}, "
            f"but {index.source} has {list(index.class_names)}. "
            "Validate on data with the same classes in the same order."
        )


def _with_keypoints(index: SplitIndex, trained: TrainedModel) -> SplitIndex:
    """The split with spreads and skeleton as in the training."""
    spec = trained.info.spec.keypoints
    if spec is None or index.keypoints is None:
        return index
    if index.keypoints.names != spec.names:
        raise RunError(
            f"checkpoint={trained.path} knows the key points {list(spec.names)}, but {index.source} has "
            f"{list(index.keypoints.names)}. Validate on data with the same key points in the same order."
        )
    return with_keypoints(index, spec)


def _write(
    out: Path,
    config: ValidateConfig,
    index: SplitIndex,
    found: Mapping[Decoder, Evaluation],
    metrics: Mapping[str, float | None],
    details: Mapping[str, Any],
    trained: TrainedModel,
) -> None:
    from lucid_yolo.viz.report import write_validation_pictures  # noqa: PLC0415 - imports matplotlib

    report = {
        "checkpoint": str(trained.path),
        "split": config.split.value,
        "source": index.source,
        "metrics": dict(metrics),
        "details": dict(details),
        "torch": torch.__version__,
    }
    (out / "report.json").write_text(json.dumps(report, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    for decoder, evaluation in found.items():
        main, *others = result_types(evaluation.detections)
        name = f"predictions{decoder.suffix}"
        write_json(out / f"{name}.json", to_coco_json(index, evaluation.detections, main))
        for other in others:
            write_json(out / f"{name}_{other.value}.json", to_coco_json(index, evaluation.detections, other))
    shown = found[trained.task.decoders[0]]
    write_validation_pictures(
        out,
        index,
        shown.detections,
        shown.metrics.main,
        class_names=index.class_names,
        read=partial(read_image, exif=trained.exif_orientation),
    )
