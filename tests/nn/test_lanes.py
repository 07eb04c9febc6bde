"""Stems are handed to whoever runs lanes, all of them, after one fork, and with the same numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from lucid_yolo.nn.heads.stems import Stem
from lucid_yolo.nn.lanes import IN_TURN, Laned, forget_lanes, set_lanes
from lucid_yolo.nn.model import Detector, KeypointDetector, ObbDetector, Scale, Segmenter

TINY = Scale("tiny", 0.5, 0.125, 128)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {  # stems: kinds of output, two branches, three levels
    "detect": (lambda: Detector(TINY, 3), 2 * 2 * 3),
    "segment": (lambda: Segmenter(TINY, 3), 3 * 2 * 3),
    "keypoints": (lambda: KeypointDetector(TINY, 1, 5), 3 * 2 * 3),
    "obb": (lambda: ObbDetector(TINY, 3), 3 * 2 * 3),
}


def same(one: object, other: object) -> bool:
    """Whether nested predictions are equal bit for bit."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and torch.equal(one, other)
    return len(one) == len(other) and all(map(same, one, other))  # type: ignore[arg-type]


class Backwards:
    """Runs the last function first: nothing may depend on the order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.stems: list[object] = []

    def fork(self) -> None:
        self.calls.append("fork")

    def run(self, functions: Sequence[Callable[[Tensor], Tensor]], inputs: Sequence[Tensor]) -> list[Tensor]:
        self.calls.append("run")
        self.stems += functions
        found = [function(x) for function, x in reversed(list(zip(functions, inputs, strict=True)))]
        return found[::-1]


@pytest.mark.parametrize("task", NETWORKS)
def test_every_stem_runs_in_a_lane_and_nothing_else_changes(task: str) -> None:
    make, stems = NETWORKS[task]
    torch.manual_seed(0)
    network = make().train()
    twin, lanes, images = copy.deepcopy(network), Backwards(), torch.rand(2, 3, 64, 64)
    set_lanes(network, lanes)
    found, expected = network(images), twin(images)
    assert same(found, expected)
    assert lanes.calls[0] == "fork"
    assert lanes.calls.count("fork") == 1
    assert len(set(map(id, lanes.stems))) == len(lanes.stems) == stems
    assert all(isinstance(stem, Stem) for stem in lanes.stems)
    lanes.calls.clear()
    network.eval()
    assert same(network.one_to_one_forward(images), twin.eval().one_to_one_forward(images))
    assert lanes.calls[0] == "fork"
    forget_lanes(network)
    assert all(module.lanes is IN_TURN for module in network.modules() if isinstance(module, Laned))
    assert network.state_dict().keys() == twin.state_dict().keys()
