"""What one training sample costs, in units of decoding one of its images with OpenCV in the same run.

    python -m lucid_yolo.bench.loader data=coco data.root=FOLDER [cache=decoded] [hsv=device] [--out RECORD.json]

One process, one thread. Everything is timed in turns, so that a change of the machine's speed hits all alike, and the
medians are compared. With hsv=device a sample ends before its colours are changed. Prints a table; ``--out`` writes a
record. The making of a cache is not timed; whether it fits is for the user to know, its size is printed first.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from rich.table import Table

from lucid_yolo.bench.record import environment, write_record
from lucid_yolo.config.compose import compose, to_root
from lucid_yolo.config.errors import LucidError
from lucid_yolo.config.schema import CacheConfig, CacheName, DataConfig, HsvName
from lucid_yolo.config.terminal import open_console
from lucid_yolo.data.batch import Batch
from lucid_yolo.data.cache import cache_bytes, open_cache
from lucid_yolo.data.collate import collate
from lucid_yolo.data.colour import ColourHere, ColourLater
from lucid_yolo.data.dataset import SampleKey, TrainDataset
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.statistics import target_rows
from lucid_yolo.ops.colour import ColourTransform
from lucid_yolo.tasks.splits import read_configured

_SAMPLES = 120
_BUILDERS = 4  # threads that make a cache, before anything is timed


@dataclass(frozen=True, slots=True)
class LoaderCost:
    """Medians on one core.

    Attributes:
        decode_ms: reading and decoding one image with OpenCV, the unit.
        sample_ms: a sample alone, every picture decoded afresh.
        batch_sample_ms: a sample within a batch, where a picture is decoded once, packing included.
        colour_ms: the colour transform of one canvas; part of the samples with hsv=worker.
        image_size: side of the canvas.
        batch_size: samples a batch.
        images: in the split.
        samples: timed.
        cache: where the pictures of the samples came from; none: their files.
        hsv: who changes the colours; anything but worker leaves that out of the samples.
    """

    decode_ms: float
    sample_ms: float
    batch_sample_ms: float
    colour_ms: float
    image_size: int
    batch_size: int
    images: int
    samples: int
    cache: str = "none"
    hsv: str = "worker"

    @property
    def decodes_a_sample(self) -> float:
        """Cost of a sample alone, in decodes."""
        return self.sample_ms / self.decode_ms

    @property
    def decodes_a_batch_sample(self) -> float:
        """Cost of a sample within a batch, in decodes."""
        return self.batch_sample_ms / self.decode_ms


def measure(
    index: SplitIndex,
    config: DataConfig,
    cache: CacheConfig | None = None,
    hsv: HsvName = HsvName.WORKER,
    *,
    samples: int = _SAMPLES,
    seed: int = 0,
) -> LoaderCost:
    """Time training samples against decoding.

    Sets the threads of OpenCV and torch to one for the process.

    Args:
        index: training split.
        config: canvas, batch size and augmentation.
        cache: of the pictures that the samples take; none unless given.
        hsv: whether the samples' colours are changed.
        samples: to time; batches are as many as that makes.
        seed: of the samples.
    """
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    cache = cache or CacheConfig()
    cached = cache.selected is not CacheName.NONE
    pictures = open_cache(index, config, cache, threads=_BUILDERS)[0] if cached else None
    epochs = config.augment.close_mosaic + samples
    stage = ColourHere() if hsv is HsvName.WORKER else ColourLater()
    dataset = TrainDataset(index, config, seed=seed, max_epochs=epochs, pictures=pictures, colour=stage)
    rows = target_rows(index, config)
    colour = ColourTransform()
    gains = np.array(
        [1 + config.augment.hsv_h / 2, 1 + config.augment.hsv_s / 2, 1 + config.augment.hsv_v / 2], np.float32
    )
    decode_ms, sample_ms, batch_ms, colour_ms = [], [], [], []
    order = np.random.default_rng(seed).integers(len(index), size=(samples, config.batch_size)).tolist()
    for turn, images in enumerate(order):
        own = images[0]
        decode_ms.append(_milliseconds(cv2.imread, index.paths[own], cv2.IMREAD_COLOR_RGB))
        sample_ms.append(_milliseconds(dataset.__getitem__, (turn, own)))
        colour_ms.append(_milliseconds(colour, dataset[turn, own].image, gains))
        if turn % config.batch_size == 0:
            whole = _milliseconds(_batch, dataset, [(turn, image) for image in images], rows)
            batch_ms.append(whole / config.batch_size)
    return LoaderCost(
        decode_ms=statistics.median(decode_ms),
        sample_ms=statistics.median(sample_ms),
        batch_sample_ms=statistics.median(batch_ms),
        colour_ms=statistics.median(colour_ms),
        image_size=config.image_size,
        batch_size=config.batch_size,
        images=len(index),
        samples=samples,
        cache=str(cache.selected),
        hsv=str(hsv),
    )


def render(cost: LoaderCost) -> Table:
    """Show a measurement."""
    options = f"cache={cost.cache} hsv={cost.hsv}"
    title = f"one training sample at {cost.image_size} px, one core, {cost.images} images, {options}"
    table = Table(title=title)
    for name in ("what", "ms", "decodes"):
        table.add_column(name, justify="left" if name == "what" else "right")
    rows = {
        "decode one image (unit)": cost.decode_ms,
        "sample alone": cost.sample_ms,
        f"sample in a batch of {cost.batch_size}, packed": cost.batch_sample_ms,
        f"colour transform ({'part of it' if cost.hsv == HsvName.WORKER else 'left to the device'})": cost.colour_ms,
    }
    for name, milliseconds in rows.items():
        table.add_row(name, f"{milliseconds:.2f}", f"{milliseconds / cost.decode_ms:.2f}")
    return table


def as_record(cost: LoaderCost) -> dict[str, object]:
    """Return plain containers for JSON."""
    return {
        **asdict(cost),
        "decodes_a_sample": cost.decodes_a_sample,
        "decodes_a_batch_sample": cost.decodes_a_batch_sample,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the loader of a configuration; returns the exit status."""
    parser = argparse.ArgumentParser(description="Cost of a training sample in decodes.")
    parser.add_argument("--out", type=Path, help="file of the record")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    options = parser.parse_intermixed_args(argv)
    try:
        root = to_root(compose(["run_dir=.", *options.overrides]))
        index, _ = read_configured(root)
        if nbytes := cache_bytes(index.sizes, root.cache.selected, root.data.image_size):
            print(f"cache={root.cache.selected}: {nbytes / 1024**2:.1f} MiB")
        cost = measure(index, root.data, root.cache, root.hsv.selected)
    except LucidError as error:
        print(error, file=sys.stderr)
        return 2
    open_console().print(render(cost))
    if options.out is not None:
        arguments = sys.argv[1:] if argv is None else argv
        command = f"python -m lucid_yolo.bench.loader {shlex.join(arguments)}"
        write_record(options.out, {"command": command, **environment(torch.device("cpu")), **as_record(cost)})
    return 0


def _batch(dataset: TrainDataset, keys: list[SampleKey], rows: int) -> Batch:
    return collate(dataset.__getitems__(keys), rows=rows)


def _milliseconds(work: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    work(*arguments)
    return 1000 * (time.perf_counter() - start)


if __name__ == "__main__":
    raise SystemExit(main())
