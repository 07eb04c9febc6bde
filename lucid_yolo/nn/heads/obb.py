"""The head for oriented boxes: an angle at every anchor."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from lucid_yolo.nn.heads.detect import TwoBranchHead
from lucid_yolo.nn.heads.stems import Pair, StemPair
from lucid_yolo.nn.parts import Part, PartCaller, directly
from lucid_yolo.nn.predictions import ObbBranch, ObbPredictions, Predictions


def angle_width(channels: int) -> int:
    """Channels inside an angle stem on a level of ``channels``."""
    return max(16, channels // 2)


class Angles(StemPair):
    """Angles (B, A) of both branches in radians, raw (arXiv 2606.03748, equation 13)."""

    def __init__(self, channels: Sequence[int], *, detach_one_to_one: bool) -> None:
        super().__init__(channels, [angle_width(c) for c in channels], 1, detach_one_to_one=detach_one_to_one)

    def finish(self, outputs: Tensor) -> Tensor:
        """View (B, A, 1) as (B, A)."""
        return outputs.squeeze(-1)


class ObbHead(TwoBranchHead):
    """Boxes, classes and angles of two branches (arXiv 2606.03748).

    ``detect`` and ``angles`` can be called by themselves, each with the levels.

    Args:
        channels: channels of the levels, finest first.
        num_classes: number of classes.
        detach_one_to_one: stop the one-to-one branch's gradient at its input.
    """

    def __init__(self, channels: Sequence[int], num_classes: int, *, detach_one_to_one: bool) -> None:
        super().__init__(channels, num_classes, detach_one_to_one=detach_one_to_one)
        self.angles = Angles(channels, detach_one_to_one=detach_one_to_one)

    def compute(self, levels: Sequence[Tensor], call: PartCaller) -> ObbPredictions:
        """Do what ``forward`` does, each part by way of ``call``."""
        self.lanes.fork()
        boxes: Predictions = call(self.boxes, levels)
        angles: Pair = call(Part("angles", (self.angles,), self.angles), levels)
        return ObbPredictions(
            ObbBranch(*boxes.one_to_many, angles.one_to_many), ObbBranch(*boxes.one_to_one, angles.one_to_one)
        )

    def forward(self, levels: Sequence[Tensor]) -> ObbPredictions:
        """Map features, finest first, to the raw predictions of both branches."""
        return self.compute(levels, directly)

    def deployed(self, levels: Sequence[Tensor]) -> ObbBranch:
        """Map features, finest first, to the raw predictions of the one-to-one branch."""
        self.lanes.fork()
        return ObbBranch(*self.detect_deployed(levels), self.angles.deployed(levels))
