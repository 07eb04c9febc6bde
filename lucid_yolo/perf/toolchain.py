"""What the project's own kernels need beside CUDA, as rules that every flag with such kernels shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lucid_yolo.config.schema import CompileName
from lucid_yolo.perf.rules import Facts, Kind, Rule, Stage, needs_cuda

CAPABILITY = (8, 0)
"""Oldest compute capability that the kernels are built for."""


@dataclass(frozen=True, slots=True)
class _Need:
    """Something without which Triton builds no kernel.

    Attributes:
        name: of its rules.
        unmet: whether a CUDA machine lacks it.
        what: follows "needs".
        advice: what to do, with the option that does without in braces.
    """

    name: str
    unmet: Callable[[Facts], bool]
    what: str
    advice: str


_NEEDS = (
    _Need(
        "needs-linux",
        lambda facts: facts.machine.os != "Linux",
        "Triton on Linux, this is {machine.os}",
        "{without} does without it",
    ),
    _Need(
        "needs-capability",
        lambda facts: facts.machine.cuda_devices[0].capability < CAPABILITY,
        f"a CUDA device of capability {'.'.join(map(str, CAPABILITY))} or newer, {{machine.device_name}} is older",
        "{without} does without it",
    ),
    _Need(
        "needs-triton",
        lambda facts: not facts.machine.triton,
        "Triton, which cannot be imported here",
        "install triton, or set {without}",
    ),
    _Need(
        "needs-compiler",
        lambda facts: facts.machine.host_compiler is None,
        "a C compiler on the host, and none of $CC, cc, gcc and clang was found",
        "install one, or set {without}",
    ),
)


def missing_for_kernels(facts: Facts) -> str:
    """What a CUDA machine lacks to build kernels, the first of it, in words that follow "needs"; empty: nothing."""
    unmet = (need.what for need in _NEEDS if need.unmet(facts))
    return next(unmet, "").format(machine=facts.machine)


def needs_toolchain(prefix: str, *, asked: Callable[[Facts], bool], what: str, without: str) -> tuple[Rule, ...]:
    """The rows of a flag that falls back where Triton cannot build kernels.

    Args:
        prefix: of the rules' ids.
        asked: whether the configuration asks for the kernels, and the run computes on CUDA.
        what: the kernels, as a sentence begins with them.
        without: option that does without them.
    """

    def fallback(need: _Need) -> Rule:
        return Rule(
            id=f"{prefix}.{need.name}",
            stage=Stage.MACHINE,
            kind=Kind.FALLBACK,
            applies=lambda facts: asked(facts) and need.unmet(facts),
            sentence=f"{what} needs {need.what}; {need.advice.format(without=without)}",
        )

    return tuple(map(fallback, _NEEDS))


def needs_of_own_kernels(
    prefix: str, *, asked: Callable[[Facts], bool], option: str, without: str, compiler: str, settings: str
) -> tuple[Rule, ...]:
    """All rows of a flag that puts kernels of ours in the place of torch's in a step that is not compiled.

    Args:
        prefix: of the rules' ids.
        asked: whether the configuration asks for the kernels.
        option: that asks for them.
        without: option that does without them.
        compiler: what torch.compile does instead.
        settings: that end the conflict with it.
    """
    return (
        Rule(
            id=f"{prefix}.or-compile",
            stage=Stage.CONFIG,
            kind=Kind.REFUSE,
            applies=lambda facts: asked(facts) and facts.config.compile.selected is CompileName.STEP,
            sentence=f"{option} and compile=step exclude each other, torch.compile {compiler}; set {settings}",
        ),
        needs_cuda(
            f"{prefix}.needs-cuda",
            asked=asked,
            claim=f"{option} needs a CUDA device",
            otherwise=f"; {without} runs everywhere",
        ),
        *needs_toolchain(
            prefix,
            asked=lambda facts: asked(facts) and facts.machine.accelerator == "cuda",
            what=option,
            without=without,
        ),
    )
