"""Where the time of one eager training step goes: milliseconds by part, kernels, memory.

The parts are called as the training module calls them, on made-up images and objects that stay on the device, so that
no loader is measured. ``python -m lucid_yolo.bench.step --help`` says how to run it; a record is JSON.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lucid_yolo.bench.record import environment, write_record
from lucid_yolo.config.compose import compose, to_root
from lucid_yolo.config.schema import DepthwiseName, OnUnmet, RootConfig
from lucid_yolo.data.batch import Targets
from lucid_yolo.data.empty import empty_targets
from lucid_yolo.data.labels.base import spec_without_data
from lucid_yolo.nn.cast import CastOnce
from lucid_yolo.nn.depthwise import set_filters
from lucid_yolo.ops.images import scale_images
from lucid_yolo.optim.build import build_optimizer
from lucid_yolo.optim.clip import clip_gradients
from lucid_yolo.optim.ema import Ema
from lucid_yolo.perf.depthwise import TritonFilters
from lucid_yolo.tasks import get_task

PARTS = ("forward", "loss", "backward", "clip", "optimizer", "ema")


@dataclass(frozen=True)
class Workload:
    """What is measured.

    Attributes:
        batch: images a step.
        size: canvas in pixels.
        objects: objects an image.
        classes: classes.
        precision: "32-true" or "bf16-mixed".
        deterministic: deterministic algorithms only.
        device: "cpu" or "cuda".
    """

    batch: int
    size: int = 640
    objects: int = 8
    classes: int = 80
    precision: str = "bf16-mixed"
    deterministic: bool = True
    device: str = "cuda"


class StepRig:
    """One model with everything a step needs, as the training module puts it together."""

    def __init__(self, workload: Workload, config: RootConfig) -> None:
        self.workload = workload
        self.device = torch.device(workload.device)
        self.memory_format = torch.channels_last
        task = get_task(config.task.name)
        spec = spec_without_data(task.labels, workload.classes)
        model = task.build_model(config.model, spec)
        self.model: nn.Module = model.to(self.device, memory_format=self.memory_format)  # type: ignore[call-overload]
        self.model.train()
        if self.device.type == "cuda" and config.depthwise.selected is not DepthwiseName.STOCK:
            set_filters(self.model, TritonFilters(OnUnmet.FALLBACK))
        self.network = CastOnce(self.model)
        self.loss = task.build_loss(config.task, spec, workload.size).to(self.device)
        self.optimizer = build_optimizer(self.model, config.optimizer, self.loss)
        self.parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.ema = Ema(self.model, decay=config.trainer.ema.decay, ramp=config.trainer.ema.ramp).to(self.device)
        self.clip_norm = config.trainer.clip_norm
        self.images, targets = make_batch(workload, self.device)
        labels = empty_targets(task.labels, spec, rows=len(targets.valid), image_size=workload.size)
        drawn = {name: getattr(targets, name) for name in ("image_index", "classes", "boxes", "valid")}
        self.targets = replace(labels.to(self.device), **drawn)

    def autocast(self) -> AbstractContextManager[object]:
        """The arithmetic of forward and loss."""
        if self.workload.precision == "bf16-mixed":
            return torch.autocast(self.device.type, torch.bfloat16)
        return nullcontext()

    def step(self, mark: Callable[[], None] = lambda: None) -> Tensor:
        """Run one step; ``mark`` is called before the first part and after each.

        Returns:
            0-d loss, on the device.
        """
        mark()
        with self.autocast():
            predictions = self.network(scale_images(self.images.permute(0, 3, 1, 2), memory_format=self.memory_format))
            mark()
            losses = self.loss(predictions, self.targets)
            mark()
        losses.total.backward()
        mark()
        norm = clip_gradients(self.parameters, self.clip_norm)
        self.optimizer.update_allowed = (norm < math.inf) & (losses.total.detach().abs() < math.inf)
        mark()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        mark()
        self.ema.update(self.model, allowed=self.optimizer.update_allowed)
        mark()
        total: Tensor = losses.total.detach()
        return total


def make_batch(workload: Workload, device: torch.device) -> tuple[Tensor, Targets]:
    """Draw images and objects.

    Returns:
        (B, S, S, 3) uint8 images, and packed targets padded to a power of two.
    """
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(
        0, 256, (workload.batch, workload.size, workload.size, 3), dtype=torch.uint8, generator=generator
    )
    count = workload.batch * workload.objects
    rows = max(16, 1 << (count - 1).bit_length())
    low, high = 16.0, workload.size / 3
    sides = low + (high - low) * torch.rand(count, 2, generator=generator)
    corner = torch.rand(count, 2, generator=generator) * (workload.size - sides)
    boxes = torch.zeros(rows, 4)
    boxes[:count] = torch.cat((corner, corner + sides), 1)
    image_index = torch.zeros(rows, dtype=torch.int64)
    image_index[:count] = torch.arange(workload.batch).repeat_interleave(workload.objects)
    classes = torch.zeros(rows, dtype=torch.int64)
    classes[:count] = torch.randint(0, workload.classes, (count,), generator=generator)
    targets = Targets(image_index=image_index, classes=classes, boxes=boxes, valid=torch.arange(rows) < count)
    return images.to(device), targets.to(device)


def measure(workload: Workload, config: RootConfig, *, warmup: int = 8, steps: int = 40) -> dict[str, Any]:
    """Time a workload on this process.

    Whole steps run without a synchronisation inside (windows of five, the wall clock around each); parts are timed in a
    second pass, synchronised between parts, so their sum is larger than a step where the device and the host overlap.
    A third pass times them without a synchronisation: what the host spends on launching them.

    Args:
        workload: what to measure.
        config: model, optimizer and loss.
        warmup: steps before timing.
        steps: timed steps of each pass.
    """
    torch.use_deterministic_algorithms(workload.deterministic)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    cuda = workload.device == "cuda"
    if cuda:
        torch.set_float32_matmul_precision("high")
        torch.cuda.reset_peak_memory_stats()
    rig = StepRig(workload, config)
    synchronize: Callable[[], None] = torch.cuda.synchronize if cuda else _nothing
    started = time.perf_counter()
    rig.step()
    synchronize()
    first = time.perf_counter() - started
    for _ in range(warmup - 1):
        rig.step()
    synchronize()
    whole = []
    for _ in range(max(1, steps // 5)):
        begin = time.perf_counter()
        for _ in range(5):
            rig.step()
        synchronize()
        whole.append(1000 * (time.perf_counter() - begin) / 5)
    return {
        **asdict(workload),
        "first_step_seconds": first,
        "step_ms": _spread(whole),
        "parts_ms": _time_parts(rig, synchronize, max(5, steps // 2)),
        "parts_host_ms": _time_parts(rig, _nothing, max(5, steps // 2)),
        "kernels": count_kernels(rig),
        "peak_allocated_mib": torch.cuda.max_memory_allocated() / 2**20 if cuda else None,
        "peak_reserved_mib": torch.cuda.max_memory_reserved() / 2**20 if cuda else None,
    }


def count_kernels(rig: StepRig) -> int:
    """Count what one step launches: kernels, copies and fills on CUDA; on a CPU the operators that would launch one."""
    if rig.device.type != "cuda":
        with LaunchCounter() as counter:
            rig.step()
        return int(counter.launches)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        rig.step()
        torch.cuda.synchronize()
    return sum(1 for event in profile.events() if event.device_type.name == "CUDA")


class LaunchCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operators that compute; a multi-tensor operator counts once, whatever the number of its tensors."""

    NO_LAUNCH = ("empty", "detach", "alias", "lift", "resize", "set_", "_local_scalar", "is_pinned")

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.launches = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if not func.is_view and not name.startswith(self.NO_LAUNCH):
            self.launches += 1
        return func(*args, **(kwargs or {}))


def _time_parts(rig: StepRig, synchronize: Callable[[], None], steps: int) -> dict[str, dict[str, float]]:
    times: dict[str, list[float]] = {part: [] for part in PARTS}
    for _ in range(steps):
        marks: list[float] = []

        def mark(marks: list[float] = marks) -> None:
            synchronize()
            marks.append(time.perf_counter())

        rig.step(mark)
        for part, begin, end in zip(PARTS, marks[:-1], marks[1:], strict=True):
            times[part].append(1000 * (end - begin))
    return {part: _spread(values) for part, values in times.items()}


def _nothing() -> None:
    """What a synchronisation is on a CPU."""


def _spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"median": statistics.median(ordered), "min": ordered[0], "max": ordered[-1], "n": len(ordered)}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure the workloads that the arguments name and write one record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--objects", type=int, nargs="+", default=[8])
    parser.add_argument("--size", type=int, default=640)
    parser.add_argument("--classes", type=int, default=80)
    parser.add_argument("--precision", default="bf16-mixed", choices=["bf16-mixed", "32-true"])
    parser.add_argument("--deterministic", nargs="+", default=["on", "off"], choices=["on", "off"])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--out", type=Path, required=True, help="file of the record")
    parser.add_argument("overrides", nargs="*", help="configuration overrides, such as model=s optimizer=sgd")
    options = parser.parse_args(argv)
    config = to_root(compose(options.overrides))
    rows = []
    for deterministic in options.deterministic:
        for objects in options.objects:
            for batch in options.batch:
                workload = Workload(
                    batch=batch,
                    size=options.size,
                    objects=objects,
                    classes=options.classes,
                    precision=options.precision,
                    deterministic=deterministic == "on",
                    device=options.device,
                )
                rows.append(measure(workload, config, steps=options.steps))
                step = rows[-1]["step_ms"]
                print(
                    f"batch {batch} objects {objects} deterministic {deterministic}: {step['median']:.1f} ms "
                    f"({step['min']:.1f} to {step['max']:.1f}), {rows[-1]['kernels']} kernels"
                )
                for part, value in rows[-1]["parts_ms"].items():
                    print(f"    {part:10s} {value['median']:7.2f} ms")
    command = "python -m lucid_yolo.bench.step " + " ".join(argv if argv is not None else _arguments())
    write_record(options.out, {"command": command, **environment(torch.device(options.device)), "rows": rows})


def _arguments() -> list[str]:
    import sys  # noqa: PLC0415

    return sys.argv[1:]


if __name__ == "__main__":
    main()
