"""``precision``: arithmetic of the training step."""

from __future__ import annotations

from lucid_yolo.config.schema import PrecisionName
from lucid_yolo.perf.flag import Choice, Flag
from lucid_yolo.perf.rules import Facts, Kind, Rule, Stage, broken_rules, needs_cuda

# First release whose final build records and compiles bf16 autocast as the flags need it.
BF16_TORCH = (2, 9)


def _requests(facts: Facts, *names: PrecisionName) -> bool:
    return facts.config.precision.name in names


def _device_has_bf16(facts: Facts) -> bool:
    return facts.machine.accelerator == "cuda" and facts.machine.cuda_devices[0].bf16


def _choose(facts: Facts) -> Choice:
    machine = facts.machine
    if not _requests(facts, PrecisionName.AUTO):
        return Choice(value=str(facts.config.precision.name))
    if machine.accelerator != "cuda":
        return Choice(
            value="32-true", reason=f"auto: mixed precision needs CUDA, this run computes on {machine.accelerator}"
        )
    if not _device_has_bf16(facts):
        return Choice(value="32-true", reason=f"auto: {machine.device_name} does not compute in bfloat16")
    if not machine.has_torch(*BF16_TORCH):
        return Choice(value="32-true", reason=f"auto: torch {machine.torch_version} is older than a final 2.9")
    return Choice(value="bf16-mixed", reason=f"auto: {machine.device_name} computes in bfloat16")


def active_precision(facts: Facts) -> str:
    """The arithmetic that a run gets, which may be another one than it asks for; for rules of other flags."""
    (flag,) = FLAGS
    return str(flag.fallback if broken_rules(flag.rules, facts) else flag.choose(facts).value)


FLAGS = (
    Flag(
        key="precision",
        option="precision=auto|32-true|bf16-mixed|16-mixed",
        summary="Arithmetic of the training step; auto is bf16-mixed on a CUDA device that has it, else 32-true.",
        requested=lambda facts: str(facts.config.precision.name),
        choose=_choose,
        fallback="32-true",
        rules=(
            needs_cuda(
                "precision.mixed-needs-cuda",
                asked=lambda facts: _requests(facts, PrecisionName.BF16, PrecisionName.FP16),
                claim="precision={config.precision.name} needs a CUDA device",
                otherwise="; precision=32-true runs everywhere",
            ),
            Rule(
                id="precision.bf16-needs-capability",
                stage=Stage.MACHINE,
                kind=Kind.FALLBACK,
                applies=lambda facts: (
                    _requests(facts, PrecisionName.BF16)
                    and facts.machine.accelerator == "cuda"
                    and not _device_has_bf16(facts)
                ),
                sentence="precision=bf16-mixed needs a CUDA device of capability 8.0 or newer, {machine.device_name} "
                "does not compute in bfloat16; precision=16-mixed does not need it",
            ),
            Rule(
                id="precision.bf16-needs-torch",
                stage=Stage.MACHINE,
                kind=Kind.FALLBACK,
                applies=lambda facts: _requests(facts, PrecisionName.BF16) and not facts.machine.has_torch(*BF16_TORCH),
                sentence="precision=bf16-mixed needs a final release of torch, 2.9 or newer, found "
                "{machine.torch_version} (a0, dev and rc builds are not final)",
            ),
        ),
    ),
)
