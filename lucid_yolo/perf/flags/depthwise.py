"""``depthwise``: whose kernels compute depthwise convolutions."""

from __future__ import annotations

from lucid_yolo.config.schema import CompileName, DepthwiseName
from lucid_yolo.perf.flag import Choice, Flag
from lucid_yolo.perf.rules import Facts
from lucid_yolo.perf.toolchain import missing_for_kernels, needs_of_own_kernels

STOCK, TRITON = str(DepthwiseName.STOCK), str(DepthwiseName.TRITON)


def _is_asked(facts: Facts) -> bool:
    return facts.config.depthwise.selected is DepthwiseName.TRITON


def _choose(facts: Facts) -> Choice:
    selected = facts.config.depthwise.selected
    if selected is not DepthwiseName.AUTO:
        return Choice(value=str(selected))
    if facts.config.compile.selected is CompileName.STEP:
        return Choice(value=STOCK, reason=f"auto: compile={facts.config.compile.selected} looks for torch's")
    if facts.machine.accelerator != "cuda":
        elsewhere = facts.machine.accelerator
        return Choice(value=STOCK, reason=f"auto: our kernels need CUDA, this run computes on {elsewhere}")
    unmet = missing_for_kernels(facts)
    if unmet:
        return Choice(value=STOCK, reason=f"auto: our kernels need {unmet}")
    return Choice(value=TRITON, reason="auto: ready at once, where cuDNN compiles a kernel for every shape")


FLAGS = (
    Flag(
        key="depthwise",
        option="depthwise=auto|stock|triton",
        summary="Whose kernels compute depthwise convolutions: torch's (cuDNN compiles one for every shape when a "
        "process first meets it, seconds of the first step), or ours for all shapes, kept on disk; auto takes ours "
        "where they can be built.",
        requested=lambda facts: str(facts.config.depthwise.selected),
        choose=_choose,
        fallback=STOCK,
        rules=needs_of_own_kernels(
            "depthwise",
            asked=_is_asked,
            option="depthwise=triton",
            without="depthwise=stock",
            compiler="looks for torch's convolutions",
            settings="depthwise=auto or compile=none",
        ),
    ),
)
