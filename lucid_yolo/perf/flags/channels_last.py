"""``channels_last``: memory layout of images and convolutions. Not an option: it follows the device."""

from __future__ import annotations

from lucid_yolo.perf.flag import Choice, Flag
from lucid_yolo.perf.rules import Facts


def _choose(facts: Facts) -> Choice:
    accelerator = facts.machine.accelerator
    if accelerator == "mps":
        return Choice(value=False, reason="not used on MPS")
    return Choice(value=True, reason=f"always on {'CUDA' if accelerator == 'cuda' else 'the processor'}")


FLAGS = (
    Flag(
        key="channels_last",
        option="",
        summary="Memory layout of images and convolutions, channels innermost; used on CUDA and on the processor.",
        requested=lambda facts: "auto",
        choose=_choose,
        fallback=False,
    ),
)
