"""The end of a run: the best checkpoint scored with every decoder, as numbers, table and pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from rich.table import Table
from rich.text import Text

from lucid_yolo.data.image import read_image
from lucid_yolo.data.loader import ValLoader
from lucid_yolo.engine.checkpoint import load_model
from lucid_yolo.engine.console import RunConsole
from lucid_yolo.engine.evaluate import Evaluation, evaluate
from lucid_yolo.engine.pictures import PictureWriter
from lucid_yolo.engine.prepare import Prepared
from lucid_yolo.engine.run_dir import RunDir
from lucid_yolo.nn.depthwise import set_filters
from lucid_yolo.perf.depthwise import plan_filters
from lucid_yolo.tasks.base import Decoder, Task


def no_metrics(task: Task) -> dict[str, float | None]:
    """Names of a run's scores, without values."""
    names = [f"{name}{decoder.suffix}" for decoder in task.decoders for name in task.metric_names]
    return dict.fromkeys(["primary", *names])


def named_metrics(task: Task, found: Mapping[Decoder, Evaluation]) -> dict[str, float | None]:
    """Scores of all decoders under the names of a run's summary; None where there was nothing to score."""
    metrics = no_metrics(task)
    for decoder, evaluation in found.items():
        for name, value in task.metric_values(evaluation.metrics).items():
            metrics[f"{name}{decoder.suffix}"] = None if math.isnan(value) else value
    metrics["primary"] = metrics[task.primary]
    return metrics


def final_report(
    prepared: Prepared, run_dir: RunDir, console: RunConsole, pictures: PictureWriter
) -> dict[str, float | None]:
    """Score the best checkpoint with every decoder and draw what it finds."""
    task = prepared.task
    if not run_dir.best.exists():
        return no_metrics(task)
    trained = load_model(run_dir.best, device=prepared.device)
    filters = plan_filters(prepared.plan, prepared.config)
    if filters is not None:
        set_filters(trained.model, filters)
    loader = ValLoader(prepared.splits.val, prepared.config.data, num_workers=prepared.workers.count, pin_memory=False)
    found = evaluate(
        trained.model,
        task,
        task.decoders,
        loader,
        prepared.splits.val,
        device=prepared.device,
        precision=str(prepared.plan["precision"].active),
    )
    console.print(metrics_table("Best checkpoint, averaged weights, validation split", task, found))
    if prepared.config.logger.pictures:
        _draw(prepared, run_dir, found[task.decoders[0]], pictures)
    return named_metrics(task, found)


def metrics_table(title: str, task: Task, found: Mapping[Decoder, Evaluation]) -> Table:
    """Scores by decoder."""
    table = Table(title=title, title_justify="left")
    table.add_column("decode")
    for name in task.metric_names:
        table.add_column(name, justify="right")
    for decoder, evaluation in found.items():
        values = task.metric_values(evaluation.metrics)
        table.add_row(decoder.name, *(f"{values[name]:.4f}" for name in task.metric_names))
    return table


def class_table(task: Task, decoder: Decoder, evaluation: Evaluation, class_names: Sequence[str]) -> Table:
    """Scores by class of one decoder, of the classes that have objects."""
    metrics = evaluation.metrics.main
    at = f"precision and recall at IoU 0.5 from confidence {metrics.best_confidence:.3f} on, where mean F1 is best"
    table = Table(title=f"{decoder.name} by class", title_justify="left")
    for name in ("class", "objects", "precision", "recall", *task.metric_names[:2]):
        table.add_column(name, justify="left" if name == "class" else "right")
    columns = (*metrics.precision_and_recall(), metrics.per_class_ap, metrics.per_class_ap50)
    for i in np.flatnonzero(metrics.curves.objects).tolist():
        cells = (f"{column[i]:.4f}" if not math.isnan(column[i]) else "" for column in columns)
        table.add_row(Text(class_names[i]), str(metrics.curves.objects[i]), *cells)
    table.caption = at if metrics.detections else "nothing was found"
    table.caption_justify = "left"
    table.min_width = len(at)
    return table


def _draw(prepared: Prepared, run_dir: RunDir, evaluation: Evaluation, pictures: PictureWriter) -> None:
    from lucid_yolo.viz.report import write_curves, write_validation_pictures  # noqa: PLC0415 - imports matplotlib

    index = prepared.splits.val
    pictures.submit(
        "validation",
        lambda: write_validation_pictures(
            run_dir.pictures,
            index,
            evaluation.detections,
            evaluation.metrics.main,
            class_names=index.class_names,
            read=partial(read_image, exif=prepared.config.data.exif_orientation),
        ),
    )
    if run_dir.metrics.exists():
        pictures.submit("curves", lambda: write_curves(run_dir.pictures, run_dir.metrics))
