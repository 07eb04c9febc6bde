"""``kernels``: whose kernels normalise and activate the maps of convolution units in a training step."""

from __future__ import annotations

from lucid_yolo.config.schema import CompileName, KernelsName
from lucid_yolo.perf.flag import Choice, Flag
from lucid_yolo.perf.rules import Facts, Kind, Rule, Stage, needs_cuda
from lucid_yolo.perf.toolchain import needs_toolchain


def is_fused(facts: Facts) -> bool:
    """Whether the configuration asks for the project's own."""
    return facts.config.kernels.selected is KernelsName.FUSED


FLAGS = (
    Flag(
        key="kernels",
        option="kernels=stock|fused",
        summary="Whose kernels normalise and activate the maps of convolution units in training on CUDA: torch's, or "
        "the project's own in Triton, two forward and two backward, which read and write less memory.",
        requested=lambda facts: str(facts.config.kernels.selected),
        choose=lambda facts: Choice(value=str(facts.config.kernels.selected)),
        fallback=str(KernelsName.STOCK),
        rules=(
            Rule(
                id="kernels.or-compile",
                stage=Stage.CONFIG,
                kind=Kind.REFUSE,
                applies=lambda facts: is_fused(facts) and facts.config.compile.selected is not CompileName.NONE,
                sentence="kernels=fused and compile={config.compile.selected} exclude each other, torch.compile writes "
                "kernels of its own for the same; set kernels=stock or compile=none",
            ),
            needs_cuda(
                "kernels.needs-cuda",
                asked=is_fused,
                claim="kernels=fused needs a CUDA device",
                otherwise="; kernels=stock runs everywhere",
            ),
            *needs_toolchain(
                "kernels",
                asked=lambda facts: is_fused(facts) and facts.machine.accelerator == "cuda",
                what="kernels=fused",
                without="kernels=stock",
            ),
        ),
    ),
)
