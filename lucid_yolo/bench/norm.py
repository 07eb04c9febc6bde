"""Normalisation and activation of every map of a network: microseconds of torch and of the fused kernels.

Each kind of map that a convolution of the network gives is drawn, and its forward and backward pass timed by itself: on
CUDA inside of a graph, as in a recorded step. ``python -m lucid_yolo.bench.norm --help`` says how to run it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor, nn

from lucid_yolo.bench.record import environment, write_record
from lucid_yolo.config.compose import compose, to_root
from lucid_yolo.config.errors import RunError
from lucid_yolo.config.schema import OnUnmet, RootConfig
from lucid_yolo.config.terminal import open_console
from lucid_yolo.data.labels.base import spec_without_data
from lucid_yolo.nn.blocks import BatchNorm2d
from lucid_yolo.nn.norms import STOCK, Norms, set_norms
from lucid_yolo.perf.capture.tape import CudaTape
from lucid_yolo.perf.fused import FusedKernels
from lucid_yolo.tasks import get_task

CLASSES = 80
PASSES = 8
"""Over a map: forward read, read, written; backward map and gradient read, read, one written."""
INSIDE = 10
"""Passes of one graph: a replay is long beside its launch."""
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True, order=True)
class Map:
    """A kind of map: what is normalised of one image.

    Attributes:
        height: in positions.
        width: in positions.
        channels: of the map.
        activated: whether SiLU follows.
    """

    height: int
    width: int
    channels: int
    activated: bool


class MapCounter:
    """Counts the maps of a network instead of normalising them."""

    def __init__(self) -> None:
        self.maps: Counter[Map] = Counter()

    def normalise(self, x: Tensor, norm: nn.Module) -> Tensor:
        """Count a map that is not activated."""
        return self._see(x, activated=False)

    def normalise_and_activate(self, x: Tensor, norm: nn.Module) -> Tensor:
        """Count a map that is."""
        return self._see(x, activated=True)

    def _see(self, x: Tensor, *, activated: bool) -> Tensor:
        _, channels, height, width = x.shape
        self.maps[Map(height, width, channels, activated)] += 1
        return x


def find_maps(config: RootConfig, size: int) -> Counter[Map]:
    """How often each kind of map comes up in a training step.

    Args:
        config: task and model.
        size: of the square image, in pixels.
    """
    task = get_task(config.task.name)
    model = task.build_model(config.model, spec_without_data(task.labels, CLASSES)).to("meta").train()
    counter = MapCounter()
    set_norms(model, counter)
    model(torch.empty(1, 3, size, size, device="meta"))
    return counter.maps


def make_pass(norms: Norms, kind: Map, *, batch: int, dtype: torch.dtype, device: torch.device) -> Callable[[], Any]:
    """A forward and a backward pass over made-up numbers; returns the result and the gradients."""
    shape = (batch, kind.channels, kind.height, kind.width)
    x, gradient = (torch.randn(shape, device=device).to(dtype, memory_format=torch.channels_last) for _ in range(2))
    x.requires_grad_()
    norm = BatchNorm2d(kind.channels).to(device).train()
    run = norms.normalise_and_activate if kind.activated else norms.normalise

    def both() -> list[Tensor]:
        y = run(x, norm)
        return [y, *torch.autograd.grad(y, (x, norm.weight, norm.bias), gradient)]

    return both


def time_pass(run: Callable[[], list[Tensor]], device: torch.device, *, repeats: int) -> float:
    """Median microseconds of a pass: on CUDA of those in a graph, elsewhere as it is called.

    Args:
        run: the pass.
        device: that it computes on.
        repeats: timings.
    """
    if device.type != "cuda":
        run()
        return statistics.median(_time_call(run) for _ in range(repeats))
    tape = CudaTape(device)
    tape.rehearse(run, 3)
    track = tape.record(lambda: _last_of(run))
    track.replay()
    return statistics.median(_time_on_device(track.replay) / INSIDE for _ in range(repeats))


def measure(
    config: RootConfig, *, batch: int, size: int, dtype: torch.dtype, device: torch.device, repeats: int = 20
) -> list[dict[str, Any]]:
    """Time every kind of map, the largest first.

    Args:
        config: task and model.
        batch: images a step.
        size: of an image, in pixels.
        dtype: of the maps.
        device: that computes.
        repeats: timings of each, of which the median counts.

    Returns:
        a row a kind of map: what it is, how often it comes up, microseconds of both, and the bytes a second that the
        fused kernels move.

    Raises:
        RunError: a map was left to torch by the fused kernels, or they cannot be had.
    """
    fused, rows = FusedKernels(device, OnUnmet.RAISE).norms, []
    for kind, count in sorted(find_maps(config, size).items(), reverse=True):
        times = {
            name: time_pass(make_pass(norms, kind, batch=batch, dtype=dtype, device=device), device, repeats=repeats)
            for name, norms in (("stock_us", STOCK), ("fused_us", fused))
        }
        nbytes = PASSES * batch * kind.height * kind.width * kind.channels * dtype.itemsize
        rows.append({**asdict(kind), "count": count, **times, "gb_per_second": nbytes / times["fused_us"] / 1000})
    if reason := fused.outcome().get("stock_reason"):
        raise RunError(f"The fused kernels left a map to torch: {reason}. Nothing of this is a comparison of both.")
    return rows


def total(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    """Milliseconds of all maps of a step."""
    return float(sum(row["count"] * row[name] for row in rows)) / 1000


def table_of(rows: Sequence[Mapping[str, Any]], title: str) -> Table:
    """What was measured, for the terminal."""
    table = Table(
        title=title,
        title_justify="left",
        caption=f"all of a step: {total(rows, 'stock_us'):.3f} ms, fused {total(rows, 'fused_us'):.3f} ms",
        caption_justify="left",
    )
    for column in ("map", "SiLU", "count", "torch, us", "fused, us", "ratio", "fused, GB/s"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            f"{row['height']}x{row['width']}x{row['channels']}",
            "yes" if row["activated"] else "no",
            str(row["count"]),
            f"{row['stock_us']:.1f}",
            f"{row['fused_us']:.1f}",
            f"{row['stock_us'] / row['fused_us']:.2f}",
            f"{row['gb_per_second']:.0f}",
        )
    return table


def _last_of(run: Callable[[], list[Tensor]]) -> list[Tensor]:
    """What the last of some passes returns; one may lie where the one before did."""
    for _ in range(INSIDE - 1):
        run()
    return run()


def _time_call(run: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    run()
    return 1e6 * (time.perf_counter() - begun)


def _time_on_device(run: Callable[[], None]) -> float:
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begun.record()
    run()
    ended.record()
    ended.synchronize()
    milliseconds: float = begun.elapsed_time(ended)
    return 1000 * milliseconds


def main(argv: Sequence[str] | None = None) -> None:
    """Measure the batches that the arguments name and write one record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--size", type=int, default=640)
    parser.add_argument("--dtype", default="bf16", choices=list(TYPES))
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True, help="file of the record")
    parser.add_argument("overrides", nargs="*", help="configuration overrides, such as model=s task=segment")
    options = parser.parse_args(argv)
    config, device, records = to_root(compose(options.overrides)), torch.device(options.device), []
    for batch in options.batch:
        rows = measure(
            config, batch=batch, size=options.size, dtype=TYPES[options.dtype], device=device, repeats=options.repeats
        )
        open_console().print(table_of(rows, f"batch {batch}, {options.size} px, {options.dtype}"))
        records.append({"batch": batch, "size": options.size, "dtype": options.dtype, "rows": rows})
    command = "python -m lucid_yolo.bench.norm " + " ".join(sys.argv[1:] if argv is None else argv)
    write_record(options.out, {"command": command, **environment(device), "batches": records})


if __name__ == "__main__":
    main()
