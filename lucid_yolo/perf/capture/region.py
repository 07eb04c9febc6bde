"""What every recorded part of a step has in common: its state, its account, the ways into and out of a recording."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from lucid_yolo.config.errors import RunError
from lucid_yolo.perf.capture.tape import Tape
from lucid_yolo.perf.warning import warn_user

MIB = 1024 * 1024
MAX_RECORDINGS = 6
"""Recordings of one part in a fit. What changes more often costs more than it saves, and takes memory each time."""


@dataclass
class Account:
    """What happened to a part in a fit.

    Attributes:
        recordings: how often it was recorded.
        replays: calls that were replayed.
        native_calls: calls that were computed as without the flag.
        native_reason: why the last of them was.
        setup_seconds: time that the recordings took.
        reserved_mib: device memory that they took.
        retired: why the part is recorded no more; empty: it still is.
    """

    recordings: int = 0
    replays: int = 0
    native_calls: int = 0
    native_reason: str = ""
    setup_seconds: float = 0.0
    reserved_mib: float = 0.0
    retired: str = ""

    def as_outcome(self) -> Mapping[str, str | int | float]:
        """Entries of the plan; reasons only where there are any."""
        values: dict[str, str | int | float] = {
            "recordings": self.recordings,
            "replays": self.replays,
            "native_calls": self.native_calls,
            "setup_seconds": round(self.setup_seconds, 3),
            "reserved_mib": round(self.reserved_mib, 1),
        }
        reasons = {"native_reason": self.native_reason, "retired": self.retired}
        return values | {name: reason for name, reason in reasons.items() if reason}


class Region:
    """A part of the step that can be recorded.

    Args:
        name: option of ``capture`` that switches it on.
        tape: records.
        device: of the step.
        warmup: calls before a recording.
        part: which of those that the option records, for messages; empty: the only one.
    """

    def __init__(self, name: str, tape: Tape, *, device: torch.device, warmup: int, part: str = "") -> None:
        self.name = name
        self.part = part
        self.account = Account()
        self.tape = tape
        self.device = device
        self.warmup = warmup
        self._stream: int | None = None
        self._closed = False

    @property
    def ended(self) -> str:
        """Why nothing is recorded or replayed any more; empty: it may be."""
        return self.account.retired or ("the fit is over" if self._closed else "")

    def native(self, reason: str) -> None:
        """Count a call that is computed as without the flag."""
        self.account.native_calls += 1
        self.account.native_reason = reason

    def retire(self, reason: str) -> None:
        """Give the recording up for the rest of the fit, once, with a warning."""
        if self.ended:
            return
        reason += f" ({self.part})" if self.part else ""
        self.give_up(reason)
        _warn(self.name, reason)

    def close(self) -> None:
        """End with the fit."""
        self._closed = True
        self.release()

    def release(self) -> None:
        """Drop recordings and the memory they hold."""
        raise NotImplementedError

    def is_out_of_order(self) -> bool:
        """Whether a recording made now comes later than those that are replayed after it."""
        return bool(self.account.recordings or self.account.native_calls)

    def on_other_stream(self) -> bool:
        """Whether the current stream is not the one of the recording."""
        return self._stream is not None and self._stream != self.tape.stream()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Make a recording: keep account, and turn a failure into an error that names the option.

        Raises:
            RunError: the recording failed. What it changed on the way was put back by whoever recorded.
        """
        began, reserved = time.perf_counter(), self.tape.reserved()
        if self.is_out_of_order():
            self.tape.renew()
        try:
            with _random_state_kept(self.device):
                yield
        except torch.OutOfMemoryError:
            self.give_up("recording failed: out of memory")
            raise
        except Exception as error:
            self.give_up(f"recording failed: {type(error).__name__}")
            first = (str(error).strip().splitlines() or [""])[0]
            raise RunError(
                f"Recording {self.name} (capture={self.name}) failed: {type(error).__name__}: {first} "
                "Weights, statistics and gradients are as they were before. Leave it out of capture=... to train."
            ) from error
        self._stream = self.tape.stream()
        self.account.recordings += 1
        self.account.setup_seconds += time.perf_counter() - began
        self.account.reserved_mib += max(0, self.tape.reserved() - reserved) / MIB

    def give_up(self, reason: str) -> None:
        """Record and replay no more, without a word."""
        self.account.retired = reason
        self.release()


def retire_together(regions: Iterable[Region], reason: str) -> None:
    """Give recordings up for the rest of the fit for a reason that they share, with one warning an option."""
    lasting = [region for region in regions if not region.ended]
    for region in lasting:
        region.give_up(reason)
    for name in dict.fromkeys(region.name for region in lasting):
        _warn(name, reason)


def _warn(name: str, reason: str) -> None:
    warn_user(
        f"capture={name}: {reason}; the recording was given up, the rest of this run computes that part without it"
    )


@contextmanager
def kept(tensors: Iterable[Tensor]) -> Iterator[None]:
    """Put tensors back after a rehearsal: it changes them, and the step will do so once more."""
    tensors = list(tensors)
    # Without their history: it would tie the gradients of parameters to the stream that is current here.
    before = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)


@contextmanager
def _random_state_kept(device: torch.device) -> Iterator[None]:
    """Put the random states back: a warm-up may draw, and a run with the flag draws what a run without it does."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices, device_type="cuda"):
        yield
