"""``kernels``: whose kernels normalise, activate and pool in a training step."""

from __future__ import annotations

from lucid_yolo.config.schema import KernelsName
from lucid_yolo.perf.flag import Choice, Flag
from lucid_yolo.perf.rules import Facts
from lucid_yolo.perf.toolchain import needs_of_own_kernels


def is_fused(facts: Facts) -> bool:
    """Whether the configuration asks for the project's own."""
    return facts.config.kernels.selected is KernelsName.FUSED


FLAGS = (
    Flag(
        key="kernels",
        option="kernels=stock|fused",
        summary="Whose kernels normalise and activate the maps of convolution units, and pool, in training on CUDA: "
        "torch's, or the project's own in Triton, which read and write less memory: two forward and two backward a "
        "unit, one each way a pool.",
        requested=lambda facts: str(facts.config.kernels.selected),
        choose=lambda facts: Choice(value=str(facts.config.kernels.selected)),
        fallback=str(KernelsName.STOCK),
        rules=needs_of_own_kernels(
            "kernels",
            asked=is_fused,
            option="kernels=fused",
            without="kernels=stock",
            compiler="writes kernels of its own for the same",
            settings="kernels=stock or compile=none",
        ),
    ),
)
