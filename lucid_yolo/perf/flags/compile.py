"""``compile``: what of the training step becomes kernels of torch.compile."""

from __future__ import annotations

from lucid_yolo.config.schema import CompileName
from lucid_yolo.perf.flag import Choice, Flag
from lucid_yolo.perf.rules import Facts, Kind, Rule, Stage, needs_cuda

TRITON_CAPABILITY = (7, 0)
OPTION = "compile={config.compile.selected}"


def is_compiled(facts: Facts) -> bool:
    """Whether the configuration asks for compilation."""
    return facts.config.compile.selected is not CompileName.NONE


FLAGS = (
    Flag(
        key="compile",
        option="compile=none|loss|step",
        summary="Compiles assignment and losses, or network, assignment and losses, into one graph of fused kernels.",
        requested=lambda facts: str(facts.config.compile.selected),
        choose=lambda facts: Choice(value=str(facts.config.compile.selected)),
        fallback=str(CompileName.NONE),
        rules=(
            needs_cuda("compile.needs-cuda", asked=is_compiled, claim=f"{OPTION} makes CUDA kernels"),
            Rule(
                id="compile.needs-capability",
                stage=Stage.MACHINE,
                kind=Kind.FALLBACK,
                applies=lambda facts: (
                    is_compiled(facts)
                    and facts.machine.accelerator == "cuda"
                    and facts.machine.cuda_devices[0].capability < TRITON_CAPABILITY
                ),
                sentence=f"{OPTION} writes its kernels in Triton, which needs a CUDA device of capability 7.0 or "
                "newer; {machine.device_name} is older",
            ),
            Rule(
                id="compile.needs-triton",
                stage=Stage.MACHINE,
                kind=Kind.FALLBACK,
                applies=lambda facts: is_compiled(facts) and not facts.machine.triton,
                sentence=f"{OPTION} writes its kernels in Triton, which cannot be imported; install triton",
            ),
            Rule(
                id="compile.needs-compiler",
                stage=Stage.MACHINE,
                kind=Kind.FALLBACK,
                applies=lambda facts: is_compiled(facts) and facts.machine.host_compiler is None,
                sentence=f"{OPTION} launches its kernels through a small C program, and there is no C compiler; "
                "install one (gcc or clang), or name it in the environment variable CC",
            ),
        ),
    ),
)
