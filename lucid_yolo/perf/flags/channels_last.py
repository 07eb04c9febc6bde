"""``channels_last``: memory layout of images and convolutions. Not an option: it follows the device."""

from __future__ import annotations

from lucid_yolo.perf.flag import Choice, Flag
from lucid_yolo.perf.rules import Facts


def _choose(facts: Facts) -> Choice:
    if facts.machine.accelerator == "cuda":
        return Choice(value=True, reason="always on CUDA")
    return Choice(value=False, reason=f"used on CUDA only, this run computes on {facts.machine.accelerator}")


FLAGS = (
    Flag(
        key="channels_last",
        option="",
        summary="Memory layout of images and convolutions, channels innermost; always used on CUDA.",
        requested=lambda facts: "auto",
        choose=_choose,
        fallback=False,
    ),
)
