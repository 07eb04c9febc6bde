"""Where a step's time goes, as data and as a table; the arithmetic behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from lucid_yolo.bench.notebook import as_html, as_text
from lucid_yolo.bench.profile_checks import profile_problems
from lucid_yolo.config.errors import RunError

FORWARD, CLIP, OPTIMIZER = "forward", "clip", "optimizer"
PARTS = (FORWARD, "loss", "backward", CLIP, OPTIMIZER, "ema")
LOOP = "loop"  # what lies between the parts: hooks, logging, the copy of the next batch


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProfile:
    """Means of one step, of a training with its loader.

    Attributes:
        steps: steps of each pass.
        step_ms: from the start of a step to the start of the next one.
        wait_ms: part of it spent waiting for data.
        host_ms: by part, time of the host without a synchronisation: launching, and waiting where the device is behind.
        synchronised_ms: by part, with a wait for the device after each, so that the device's work is in it.
        optimizer_host_ms: by part of the optimizer, named as the options of ``capture`` that record them; none where
            an optimizer has no such parts. They lie inside ``host_ms["optimizer"]``, which has the rest of it too.
        optimizer_synchronised_ms: the same with a wait for the device before and after each.
        forward_host_ms: by part of the network's forward pass, likewise, where several options record its parts; they
            lie inside ``host_ms["forward"]``. The backward pass of a network is one.
        forward_synchronised_ms: the same with a wait for the device before and after each.
        clip_host_ms: of ``host_ms["clip"]`` what an option records, by its name; the rest belongs to the loop. Empty
            where the whole step is recorded.
        clip_synchronised_ms: the same with a wait for the device before and after.
        device_busy_ms: time that the device computes or copies; None on a processor.
        launches: kernels, copies and fills; on a processor the operators that would launch one.
        synchronisations: by name, waits for the device that the step asks for; None on a processor.
        flags: what was active.
        data: batch_size, image_size, train_images.
        environment: device, driver, versions, commit, cores.
    """

    steps: int
    step_ms: float
    wait_ms: float
    host_ms: Mapping[str, float]
    synchronised_ms: Mapping[str, float]
    device_busy_ms: float | None
    launches: float
    synchronisations: Mapping[str, float] | None
    flags: Mapping[str, Any]
    data: Mapping[str, int]
    environment: Mapping[str, Any]
    optimizer_host_ms: Mapping[str, float] = field(default_factory=dict)
    optimizer_synchronised_ms: Mapping[str, float] = field(default_factory=dict)
    forward_host_ms: Mapping[str, float] = field(default_factory=dict)
    forward_synchronised_ms: Mapping[str, float] = field(default_factory=dict)
    clip_host_ms: Mapping[str, float] = field(default_factory=dict)
    clip_synchronised_ms: Mapping[str, float] = field(default_factory=dict)

    @property
    def device_busy_share(self) -> float | None:
        """Share of the step in which the device is busy."""
        return None if self.device_busy_ms is None else self.device_busy_ms / self.step_ms

    @property
    def host_times(self) -> Mapping[str, float]:
        """Host time of every part of the step, and of every part of one of these, ms."""
        return {**self.host_ms, **self.optimizer_host_ms, **self.forward_host_ms, **self.clip_host_ms}

    def host_time(self, part: str) -> float:
        """Host time of a part of the step, or of a part of one of these, ms.

        Raises:
            RunError: there is no such part.
        """
        times = self.host_times
        if part not in times:
            raise RunError(
                f"A profile has no part {part}; it has {', '.join(times)}. Profiles of older versions have no parts of "
                "the optimizer: make them again."
            )
        return times[part]

    def host_parts(self, part: str) -> Mapping[str, float]:
        """Host time of what lies inside a part of the step, by name, ms; empty where nothing was timed there."""
        inside = {FORWARD: self.forward_host_ms, CLIP: self.clip_host_ms, OPTIMIZER: self.optimizer_host_ms}
        return inside.get(part, {})

    def host_share(self, part: str) -> float:
        """Share of a part in the host time of the step."""
        return self.host_time(part) / sum(self.host_ms.values())

    def as_dict(self) -> dict[str, Any]:
        """Plain containers, with the shares that follow."""
        shares = {
            "wait_share": self.wait_ms / self.step_ms,
            "device_busy_share": self.device_busy_share,
            "host_share": {part: self.host_share(part) for part in self.host_ms},
            "optimizer_host_share": {part: self.host_share(part) for part in self.optimizer_host_ms},
            "forward_host_share": {part: self.host_share(part) for part in self.forward_host_ms},
            "clip_host_share": {part: self.host_share(part) for part in self.clip_host_ms},
        }
        return {**asdict(self), "shares": shares}

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Inverse of ``as_dict``; profiles from before optimizer and forward pass had parts are read too.

        Args:
            values: whatever a file holds.

        Raises:
            RunError: everything that is wrong with it.
        """
        if problems := profile_problems(values):
            raise RunError("; ".join(problems))
        return cls(**{key: value for key, value in values.items() if key != "shares"})

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Show the parts, and a few lines about the whole."""
        table = Table(title=f"One step: {self.step_ms:.1f} ms, mean of {self.steps}", title_justify="left")
        for column in ("part", "host, ms", "share of host", "synchronised, ms"):
            table.add_column(column, justify="left" if column == "part" else "right")
        below = {
            FORWARD: self.forward_synchronised_ms,
            CLIP: self.clip_synchronised_ms,
            OPTIMIZER: self.optimizer_synchronised_ms,
        }
        for part in self.host_ms:
            table.add_row(part, *self._cells(part, self.synchronised_ms[part]))
            for inner, synchronised in below.get(part, {}).items():
                table.add_row(f"  {inner}", *self._cells(inner, synchronised))
        yield table
        for sentence in self.sentences():
            yield Text(sentence)

    def _cells(self, part: str, synchronised: float) -> tuple[str, str, str]:
        return f"{self.host_time(part):.2f}", f"{100 * self.host_share(part):.1f} %", f"{synchronised:.2f}"

    def sentences(self) -> list[str]:
        """What is no part: waiting, launching, the device, where it was measured."""
        found = [
            f"waiting for data: {self.wait_ms:.2f} ms, {100 * self.wait_ms / self.step_ms:.1f} % of the step",
            f"host, all parts: {sum(self.host_ms.values()):.2f} ms",
        ]
        if self.device_busy_ms is None or self.synchronisations is None:
            found.append(f"operators that would launch a kernel: {self.launches:.0f} a step; no device is timed here")
        else:
            waits = ", ".join(f"{name} {count:.2f}" for name, count in self.synchronisations.items()) or "none"
            busy = 100 * self.device_busy_ms / self.step_ms
            found.append(f"device busy: {self.device_busy_ms:.2f} ms, {busy:.1f} % of the step")
            found.append(f"launches: {self.launches:.0f} a step; synchronisations a step: {waits}")
        place = self.environment
        driver = f", driver {place['driver']}" if place["driver"] else ""
        found.append(
            f"{place['device']}{driver}, torch {place['versions']['torch']}, commit {place['commit']}, "
            f"batch {self.data['batch_size']}, {self.data['image_size']} px"
        )
        return found

    def __str__(self) -> str:
        """Show the same as text."""
        return as_text(self)

    def _repr_html_(self) -> str:
        """Show the same in a notebook."""
        return as_html(self)


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """Length of the union of intervals: kernels that run at the same time count once."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total
