"""A training step from its parts, as the training module calls them: eager or with some of them recorded."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from lucid_yolo.config.compose import compose, to_root
from lucid_yolo.config.schema import RootConfig
from lucid_yolo.config.tasks import TaskName
from lucid_yolo.data.batch import Targets
from lucid_yolo.data.empty import empty_targets
from lucid_yolo.nn.cast import CastOnce
from lucid_yolo.optim.build import build_optimizer
from lucid_yolo.optim.clip import clip_gradients
from lucid_yolo.optim.ema import Ema
from lucid_yolo.perf.capture.recorder import Recorder
from lucid_yolo.perf.capture.tape import Tape
from lucid_yolo.perf.objective import Objective
from lucid_yolo.tasks import get_task
from tests.nn.networks import shorten
from tests.nn.scales import TINY
from tests.perf.capture.workloads import CLASSES, WORKLOADS


def make_targets(boxes: Sequence[Sequence[float]], *, rows: int, batch: int, device: torch.device) -> Targets:
    """Objects one after the other over the images, padded to ``rows``."""
    count = len(boxes)
    targets = Targets(
        image_index=torch.zeros(rows, dtype=torch.int64),
        classes=torch.zeros(rows, dtype=torch.int64),
        boxes=torch.zeros(rows, 4),
        valid=torch.zeros(rows, dtype=torch.bool),
    )
    if count:
        targets.image_index[:count] = torch.arange(count) % batch
        targets.classes[:count] = torch.arange(count) % CLASSES
        targets.boxes[:count] = torch.tensor(boxes)
        targets.valid[:count] = True
    return Targets(*(getattr(targets, name).to(device) for name in ("image_index", "classes", "boxes", "valid")))


def draw_targets(seed: int, count: int, *, rows: int, batch: int, size: int, device: torch.device) -> Targets:
    """Random boxes."""
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=generator) * size * 0.6
    side = 8 + torch.rand(count, 2, generator=generator) * size * 0.3
    return make_targets(torch.cat((corner, corner + side), 1).tolist(), rows=rows, batch=batch, device=device)


@cache
def compose_once(overrides: tuple[str, ...]) -> RootConfig:
    """The configuration of every rig with these overrides; a rig has a copy."""
    return to_root(compose(overrides))


class Rig:
    """One network with its loss, optimizer and average."""

    def __init__(
        self,
        workload: str = "detect",
        *,
        device: str = "cpu",
        size: int = 64,
        batch: int = 2,
        precision: str = "32-true",
        overrides: Sequence[str] = (),
    ) -> None:
        self.device = torch.device(device)
        self.size, self.batch, self.precision = size, batch, precision
        self.config = copy.deepcopy(compose_once(tuple(overrides)))
        if self.device.type == "cpu":  # as many operators as in a network of real width, with less work in each
            self.config.model.width = TINY.width
        self.labels = get_task(self.config.task.name).labels
        torch.manual_seed(0)
        made = WORKLOADS[workload](self.config, size)
        is_detection = workload == "detect" and self.config.task.name == TaskName.DETECT
        if self.device.type == "cpu" and not is_detection:  # the same backbone and neck in all tasks
            shorten(made.network)
        self.regions, self.spec = made.regions, made.spec
        self.model = made.network.to(self.device, memory_format=torch.channels_last).train()
        self.loss = made.loss.to(self.device)
        self.optimizer = build_optimizer(self.model, self.config.optimizer, self.loss)
        self.parameters = [*self.model.parameters(), *self.loss.parameters()]
        self.optimizer.update_allowed = torch.ones((), dtype=torch.bool, device=self.device)
        self.ema = Ema(self.model, decay=0.99, ramp=10.0)
        self.objective = Objective(CastOnce(self.model), self.loss)
        self.clip = clip_gradients
        self.recorder: Recorder | None = None

    def record(self, tape: Tape, *names: str, warmup: int = 2) -> Recorder:
        """Put recorded parts in place."""
        self.recorder = Recorder(
            tape, device=self.device, parameters=self.parameters, warmup=dict.fromkeys(names, warmup)
        )
        self.objective = Objective(self.recorder.network(self.model, self.regions), self.recorder.loss(self.loss))
        self.clip = self.recorder.clip(clip_gradients)
        self.recorder.attach(self.optimizer)
        return self.recorder

    def images(self, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(1000 + seed)
        images = torch.rand(self.batch, 3, self.size, self.size, generator=generator)
        return images.to(self.device, memory_format=torch.channels_last)

    def targets(self, seed: int, count: int = 5, rows: int = 16) -> Targets:
        drawn = draw_targets(seed, count, rows=rows, batch=self.batch, size=self.size, device=self.device)
        empty = empty_targets(self.labels, self.spec, rows=rows, image_size=self.size)
        center, side = (drawn.boxes[:, :2] + drawn.boxes[:, 2:]) / 2, drawn.boxes[:, 2:] - drawn.boxes[:, :2]
        found: dict[str, Tensor] = {}
        if empty.masks is not None:
            generator = torch.Generator().manual_seed(seed)
            masks = torch.randint(0, 256, empty.masks.shape, generator=generator, dtype=torch.uint8)
            found["masks"] = masks.to(self.device) * drawn.valid.view(-1, 1, 1)
        if empty.keypoints is not None:
            points = empty.keypoints.shape[1]
            learned = (torch.arange(points, device=self.device) % 3 > 0).float().view(1, -1, 1).expand(rows, -1, 1)
            found["keypoints"] = torch.cat((center.unsqueeze(1).expand(-1, points, -1), learned), -1)
        if empty.rotated is not None:
            angle = torch.arange(rows, device=self.device) / rows
            found["rotated"] = torch.cat((center, side.sort(-1, descending=True)[0], angle.unsqueeze(-1)), -1)
        return replace(drawn, **found)

    def gradients(self, seed: int, targets: Targets | None = None, *, share: float = 1.0) -> Tensor:
        """Forward and backward pass; returns the total."""
        mixed = torch.autocast(self.device.type, torch.bfloat16) if self.precision == "bf16-mixed" else nullcontext()
        with mixed:
            losses = self.objective(self.images(seed), self.targets(seed) if targets is None else targets)
        (losses.total * share).backward()
        return losses.total.detach()

    def update(self) -> Tensor:
        """Clip, update, average; returns the norm."""
        norm = self.clip(self.parameters, self.config.trainer.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.ema.update(self.model, allowed=self.optimizer.update_allowed)
        return norm

    def step(self, seed: int, targets: Targets | None = None) -> tuple[Tensor, Tensor]:
        total = self.gradients(seed, targets)
        return total, self.update()

    def state(self) -> dict[str, Tensor]:
        """Everything a step changes."""
        found = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        found |= {f"loss.{name}": value for name, value in self.loss.state_dict().items()}
        found |= {f"ema.{name}": value for name, value in self.ema.state_dict().items()}
        for position, state in self.optimizer.state_dict()["state"].items():
            found |= {f"optimizer.{position}.{name}": value for name, value in state.items()}
        return {name: value.clone() for name, value in found.items()}


def assert_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """The same names and bits."""
    assert one.keys() == other.keys()
    different = [name for name in one if not torch.equal(one[name], other[name])]
    assert not different, different[:5]
