"""``hsv``: who changes the colours of training pictures, and ``hsv.fused``: whether one kernel does it."""

from __future__ import annotations

from lucid_yolo.config.schema import HsvName
from lucid_yolo.perf.flag import Choice, Flag
from lucid_yolo.perf.rules import Facts, needs_cuda
from lucid_yolo.perf.toolchain import needs_toolchain


def _selects(facts: Facts, *names: HsvName) -> bool:
    return facts.config.hsv.selected in names


def _may_fuse(facts: Facts) -> bool:
    """Whether the kernel is asked for and ``hsv`` itself is active."""
    return _selects(facts, HsvName.DEVICE) and facts.machine.accelerator == "cuda"


def _choose_fused(facts: Facts) -> Choice:
    if _selects(facts, HsvName.DEVICE) and not _may_fuse(facts):
        return Choice(value=False, reason="the workers change the colours in this run")
    return Choice(value=_may_fuse(facts))


FLAGS = (
    Flag(
        key="hsv",
        option="hsv=worker|device|device_native",
        summary="Who changes the colours of training pictures: the loader's workers, or the device, which then scales "
        "them in the same pass. The same bytes either way.",
        requested=lambda facts: str(facts.config.hsv.selected),
        choose=lambda facts: Choice(value=str(facts.config.hsv.selected)),
        fallback="worker",
        rules=(
            needs_cuda(
                "hsv.needs-cuda",
                asked=lambda facts: _selects(facts, HsvName.DEVICE, HsvName.DEVICE_NATIVE),
                claim="hsv={config.hsv.selected} needs a CUDA device",
                otherwise="; hsv=worker runs everywhere",
            ),
        ),
    ),
    Flag(
        key="hsv.fused",
        option="hsv=device",
        summary="One kernel for colour and scaling within hsv=device; without it torch does the same in many small "
        "steps, as with hsv=device_native.",
        requested=lambda facts: _selects(facts, HsvName.DEVICE),
        choose=_choose_fused,
        fallback=False,
        rules=needs_toolchain(
            "hsv.fused", asked=_may_fuse, what="the fused colour kernel", without="hsv=device_native"
        ),
    ),
)
