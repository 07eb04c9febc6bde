"""``accelerator`` and ``devices``: what the run computes on."""

from __future__ import annotations

from lucid_yolo.perf.flag import Choice, Flag
from lucid_yolo.perf.rules import Kind, Rule, Stage

FLAGS = (
    Flag(
        key="accelerator",
        option="trainer.accelerator=auto|cpu|cuda|mps",
        summary="What the run computes on; auto takes CUDA, then MPS, then the processor.",
        requested=lambda facts: str(facts.config.trainer.accelerator),
        choose=lambda facts: Choice(
            value=facts.machine.accelerator,
            reason=f"auto: {facts.machine.accelerator_reason}" if facts.config.trainer.accelerator == "auto" else "",
        ),
        fallback="cpu",
        rules=(
            Rule(
                id="accelerator.present",
                stage=Stage.MACHINE,
                kind=Kind.REFUSE,
                applies=lambda facts: facts.config.trainer.accelerator not in ("auto", *facts.machine.accelerators),
                sentence="trainer.accelerator={config.trainer.accelerator} is not present on this machine, which has "
                "{machine.accelerator_names}; set one of these, or trainer.accelerator=auto",
            ),
        ),
    ),
    Flag(
        key="devices",
        option="trainer.devices=1",
        summary="How many devices one run uses.",
        requested=lambda facts: facts.config.trainer.devices,
        choose=lambda facts: Choice(value=1, reason=facts.machine.device_name),
        fallback=1,
        rules=(
            Rule(
                id="devices.one",
                stage=Stage.CONFIG,
                kind=Kind.REFUSE,
                applies=lambda facts: facts.config.trainer.devices != 1,
                sentence="trainer.devices={config.trainer.devices}: a run uses exactly one device, training on several "
                "is not supported yet; set trainer.devices=1 (CUDA_VISIBLE_DEVICES picks which)",
            ),
        ),
    ),
)
