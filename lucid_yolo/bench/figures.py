"""Tables of the figures that the documentation shows, made from records and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lucid_yolo.bench.norm import total
from lucid_yolo.config.workloads import workload_names

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FigureTable:
    """A table of one record.

    Attributes:
        name: of the record's file and of the markers on a page.
        header: column names.
        rows: cells.
        source: sentence that says where and how it was measured.
    """

    name: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    source: str


def read_tables(folder: Path) -> list[FigureTable]:
    """Make the table of every record in a folder.

    Args:
        folder: with files ``NAME.json``, names from ``TABLES``, or of a workload for the report of its comparison.

    Raises:
        ValueError: a record that no table shows.
    """
    makers = {**dict.fromkeys(workload_names(), comparison_table), **TABLES}
    tables = []
    for path in sorted(folder.glob("*.json")):
        if path.stem not in makers:
            raise ValueError(f"{path}: no table shows this record; known are {', '.join(makers)}")
        tables.append(makers[path.stem](path.stem, json.loads(path.read_text(encoding="utf-8"))))
    return tables


def fits_table(name: str, record: Record) -> FigureTable:
    """One row a run, and their mean: AP of both decodes, of what the task is scored by."""
    ap, ap50 = [key for key in record["metrics"] if key != "primary"][:2]
    columns = (ap, ap50, f"{ap}_nms", f"{ap50}_nms")
    rows = [
        (
            f"seed {run['seed']}",
            *(f"{run['metrics'][column]:.3f}" for column in columns),
            f"{run['timing']['fit_seconds']:.0f} s",
            _ms(run["timing"]["step_ms_median"]),
            _plan(run["plan"]),
        )
        for run in record["runs"]
    ]
    means = (f"**{record['metrics'][column]['mean']:.3f}**" for column in columns)
    if len(rows) > 1:
        rows.append(("**mean**", *means, "", "", ""))
    scores = ("AP50-95", "AP50", "AP50-95 (NMS)", "AP50 (NMS)")
    of = _scored_by(ap)
    header = ("run", *(f"{of}{score}" for score in scores), "fit", "step, median", "setting")
    together = f", {record['parallel']} runs at a time" if record["parallel"] > 1 else ""
    return FigureTable(name, header, tuple(rows), _source(record, together))


def overfit_table(name: str, record: Record) -> FigureTable:
    """By decode: boxes of at least 8 px a side and masks of at least 32 x 32 px that are found, and AP of the task."""
    recalls = {"recall_50": "boxes found at IoU 0.5", "mask_recall_50": "masks found at IoU 0.5"}
    scored = [details for run in record["runs"] for details in run["validate"]["details"].items()]
    shown = [key for key in recalls if all(key in details for _, details in scored)]
    rows = [
        (
            decode,
            *(f"{details[key]['found']} of {details[key]['objects']}" for key in shown),
            *(f"**{details[key]:.3f}**" for key in ("ap", "ap50")),
        )
        for decode, details in scored
    ]
    of = _scored_by(next(key for key in record["metrics"] if key != "primary"))
    header = ("decode", *(recalls[key] for key in shown), f"{of}AP50-95", f"{of}AP50")
    return FigureTable(name, header, tuple(rows), _source(record))


def step_table(name: str, record: Record) -> FigureTable:
    """Milliseconds and launches of an eager step, and the share of its parts where they were timed."""
    parts = tuple(next(row["parts_ms"] for row in record["rows"] if row["parts_ms"] is not None))
    rows = []
    for row in record["rows"]:
        step, timed = row["step_ms"], row["parts_ms"]
        total = sum(value["median"] for value in timed.values()) if timed is not None else 0.0
        rows.append(
            (
                str(row["batch"]),
                "on" if row["deterministic"] else "off",
                f"**{step['median']:.1f}** ({step['min']:.1f} to {step['max']:.1f})",
                f"{row['kernels']:,}",
                *(f"{100 * timed[part]['median'] / total:.0f} %" if timed is not None else "" for part in parts),
            )
        )
    header = ("batch", "deterministic", "ms a step", "launches", *parts)
    return FigureTable(name, header, tuple(rows), _source(record))


def norm_table(name: str, record: Record) -> FigureTable:
    """Time that all maps of a step take to be normalised and activated, forward and backward, by batch."""
    rows = []
    for batch in record["batches"]:
        stock, fused = total(batch["rows"], "stock_us"), total(batch["rows"], "fused_us")
        maps = sum(row["count"] for row in batch["rows"])
        rows.append((str(batch["batch"]), str(maps), f"{stock:.2f} ms", f"{fused:.2f} ms", f"{stock / fused:.2f}"))
    header = ("batch", "maps", "torch", "kernels=fused", "ratio")
    return FigureTable(name, header, tuple(rows), _source(record))


def sample_table(name: str, record: Record) -> FigureTable:
    """Cost of a training sample in decodes."""
    decoded = ", every picture decoded afresh" if record["cache"] == "none" else ""
    colour = "part of it" if record["hsv"] == "worker" else "left to the device"
    rows = [
        ("decode one image (unit)", record["decode_ms"]),
        (f"sample alone{decoded}", record["sample_ms"]),
        (f"sample in a batch of {record['batch_size']}, packed", record["batch_sample_ms"]),
        (f"colour transform, {colour}", record["colour_ms"]),
    ]
    cells = tuple((what, f"{ms:.2f}", f"{ms / record['decode_ms']:.1f}") for what, ms in rows)
    return FigureTable(name, ("what", "ms", "decodes"), cells, _source(record))


def comparison_table(name: str, record: Record) -> FigureTable:
    """What an arm of a comparison took, medians over its runs."""
    rows = []
    for arm in record["arms"]:
        medians = arm["medians"]
        if not arm["runs"]:
            continue
        rows.append(
            (
                arm["name"],
                str(arm["runs"]),
                f"{medians['complete_fit']:.1f} s",
                f"{medians['fit']:.1f} s",
                f"{medians['first_step']:.1f} s",
                f"{medians['step']:.1f} ms",
                f"{medians['images']:.0f}",
                f"{medians['reserved']:.0f} MiB",
            )
        )
    header = ("arm", "runs", "complete fit", "of it the fit", "first step after", "step", "images/s", "reserved")
    workload, environment = record["workload"], record["environment"]
    arms = ",".join(workload["arms"])
    command = f"lucid-yolo compare workload={workload['name']} arms={arms} blocks={workload['blocks']}"
    return FigureTable(name, header, tuple(rows), _source({**environment, "command": command}))


TABLES: dict[str, Callable[[str, Record], FigureTable]] = {
    "shapes": fits_table,
    "shapes_segment": fits_table,
    "shapes_keypoints": fits_table,
    "shapes_obb": fits_table,
    "bccd": fits_table,
    "overfit": overfit_table,
    "overfit_segment": overfit_table,
    "overfit_keypoints": overfit_table,
    "overfit_obb": overfit_table,
    "step": step_table,
    "norm": norm_table,
    "sample": sample_table,
    "sample_decoded": sample_table,
    "sample_decoded_device": sample_table,
}


def _scored_by(ap: str) -> str:
    """What a table writes before AP where it is not that of boxes."""
    return "" if ap == "box_ap" else f"{ap.removesuffix('_ap')} "


def _plan(plan: Mapping[str, Mapping[str, Any]]) -> str:
    return f"{plan['precision']['active']}, deterministic {plan['deterministic']['active']}"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} ms"


def _source(record: Record, more: str = "") -> str:
    versions: Mapping[str, str] = record["versions"]
    driver = f", driver {record['driver']}" if record["driver"] else ""
    note = f" Note: {record['note']}" if "note" in record else ""
    return (
        f"{record['device']}{driver}, torch {versions['torch']}, commit {record['commit']}{more}. "
        f"Again with: `{record['command']}`.{note}"
    )
