"""``capture``: regions of the training step that are recorded as CUDA graphs and replayed, one row a region."""

from __future__ import annotations

from lucid_yolo.config.regions import REGIONS
from lucid_yolo.config.schema import RegionConfig
from lucid_yolo.perf.flag import Choice, Flag
from lucid_yolo.perf.rules import Facts, Kind, Rule, Stage

SUMMARIES = {
    "network": "Replays forward and backward of the network from a recording.",
    "loss": "Replays assignment and losses, forward and backward, from a recording.",
    "gradient_norm": "Replays the norm of all gradients and the clipping from a recording.",
    "orthogonalization": "Replays the orthogonalization of MuSGD's matrices from a recording.",
    "updates": "Replays momentum, mixing and decay of MuSGD from a recording.",
}


def settings_of(facts: Facts, region: str) -> RegionConfig:
    """What the configuration says about a region."""
    settings: RegionConfig = getattr(facts.config.capture, region)
    return settings


def _flag(region: str) -> Flag:
    def is_selected(facts: Facts) -> bool:
        return settings_of(facts, region).selected

    return Flag(
        key=f"capture.{region}",
        option=f"capture={region}",
        summary=SUMMARIES[region],
        requested=is_selected,
        choose=lambda facts: Choice(value=is_selected(facts)),
        fallback=False,
        rules=(
            Rule(
                id=f"capture.{region}.needs-cuda",
                stage=Stage.MACHINE,
                kind=Kind.FALLBACK,
                applies=lambda facts: is_selected(facts) and facts.machine.accelerator != "cuda",
                sentence=f"capture={region} records CUDA graphs, this run computes on {{machine.accelerator}} "
                "({machine.accelerator_reason})",
            ),
        ),
    )


FLAGS = tuple(_flag(region) for region in REGIONS)
