"""What the project's own kernels need beside CUDA, as rules that every flag with such kernels shares."""

from __future__ import annotations

from collections.abc import Callable

from lucid_yolo.perf.rules import Facts, Kind, Rule, Stage

CAPABILITY = (8, 0)
"""Oldest compute capability that the kernels are built for."""


def needs_toolchain(prefix: str, *, asked: Callable[[Facts], bool], what: str, without: str) -> tuple[Rule, ...]:
    """The rows of a flag that falls back where Triton cannot build kernels.

    Args:
        prefix: of the rules' ids.
        asked: whether the configuration asks for the kernels, and the run computes on CUDA.
        what: the kernels, as a sentence begins with them.
        without: option that does without them.
    """

    def fallback(name: str, unmet: Callable[[Facts], bool], sentence: str) -> Rule:
        return Rule(
            id=f"{prefix}.{name}",
            stage=Stage.MACHINE,
            kind=Kind.FALLBACK,
            applies=lambda facts: asked(facts) and unmet(facts),
            sentence=f"{what} {sentence}",
        )

    return (
        fallback(
            "needs-linux",
            lambda facts: facts.machine.os != "Linux",
            f"needs Triton on Linux, this is {{machine.os}}; {without} does without it",
        ),
        fallback(
            "needs-capability",
            lambda facts: facts.machine.cuda_devices[0].capability < CAPABILITY,
            f"needs a CUDA device of capability {'.'.join(map(str, CAPABILITY))} or newer, {{machine.device_name}} is "
            f"older; {without} does without it",
        ),
        fallback(
            "needs-triton",
            lambda facts: not facts.machine.triton,
            f"needs Triton, which cannot be imported here; install triton, or set {without}",
        ),
        fallback(
            "needs-compiler",
            lambda facts: facts.machine.host_compiler is None,
            "needs a C compiler on the host, and none of $CC, cc, gcc and clang was found; install one, or set "
            f"{without}",
        ),
    )
