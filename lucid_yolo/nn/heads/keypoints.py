"""The key point head: points and their spread at every anchor."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from lucid_yolo.nn.heads.detect import TwoBranchHead
from lucid_yolo.nn.heads.stems import Pair, StemPair
from lucid_yolo.nn.parts import Part, PartCaller, directly
from lucid_yolo.nn.predictions import KeypointBranch, KeypointPredictions, Predictions

FINEST_WIDTH = 320
"""Least channels inside a point stem on the finest level; each coarser level has half of it."""


def point_widths(channels: Sequence[int]) -> list[int]:
    """Channels inside the point stems: ``max(c // 2, 320 / 2**i)`` on level ``i`` of ``c`` channels.

    The paper gives sizes, not widths. Its table S10 (arXiv 2606.03748; 1 class, 17 points, 640 pixels) adds more
    arithmetic to the smaller variants than stems in proportion to their channels can, most of it on the finest level.
    Of the rules tried this is the plainest that keeps every cell within 3 %: a third of the channels misses one by
    28 %, half of them by 27 %, all of them by 23 %, any single width by 7 % or more.

    | | n | s | m | l | x |
    | -- | -- | -- | -- | -- | -- |
    | parameters in M | 2.96 | 10.51 | 21.37 | 25.60 | 57.01 |
    | paper | 2.9 | 10.4 | 21.5 | 25.9 | 57.6 |
    | deviation | +2.0 % | +1.0 % | -0.6 % | -1.1 % | -1.0 % |
    | GFLOPs | 7.45 | 23.38 | 71.06 | 93.18 | 206.17 |
    | paper | 7.5 | 23.9 | 73.1 | 91.3 | 201.7 |
    | deviation | -0.6 % | -2.2 % | -2.8 % | +2.1 % | +2.2 % |

    Args:
        channels: channels of the levels, finest first.
    """
    return [max(c // 2, FINEST_WIDTH // 2**i) for i, c in enumerate(channels)]


class Points(StemPair):
    """Points (B, A, K, 4) of both branches, raw."""

    def __init__(self, channels: Sequence[int], num_keypoints: int, *, detach_one_to_one: bool) -> None:
        super().__init__(channels, point_widths(channels), 4 * num_keypoints, detach_one_to_one=detach_one_to_one)

    def finish(self, outputs: Tensor) -> Tensor:
        """View (B, A, 4 * K), point by point, as (B, A, K, 4)."""
        return outputs.view(*outputs.shape[:2], -1, 4)


class KeypointHead(TwoBranchHead):
    """Boxes, classes and key points of two branches (arXiv 2606.03748).

    ``detect`` and ``points`` can be called by themselves, each with the levels.

    Args:
        channels: channels of the levels, finest first.
        num_classes: number of classes.
        num_keypoints: K.
        detach_one_to_one: stop the one-to-one branch's gradient at its input.
    """

    def __init__(
        self, channels: Sequence[int], num_classes: int, num_keypoints: int, *, detach_one_to_one: bool
    ) -> None:
        super().__init__(channels, num_classes, detach_one_to_one=detach_one_to_one)
        self.points = Points(channels, num_keypoints, detach_one_to_one=detach_one_to_one)

    def compute(self, levels: Sequence[Tensor], call: PartCaller) -> KeypointPredictions:
        """Do what ``forward`` does, each part by way of ``call``."""
        self.lanes.fork()
        boxes: Predictions = call(self.boxes, levels)
        points: Pair = call(Part("points", (self.points,), self.points), levels)
        return KeypointPredictions(
            KeypointBranch(*boxes.one_to_many, points.one_to_many),
            KeypointBranch(*boxes.one_to_one, points.one_to_one),
        )

    def forward(self, levels: Sequence[Tensor]) -> KeypointPredictions:
        """Map features, finest first, to the raw predictions of both branches."""
        return self.compute(levels, directly)

    def deployed(self, levels: Sequence[Tensor]) -> KeypointBranch:
        """Map features, finest first, to the raw predictions of the one-to-one branch."""
        self.lanes.fork()
        return KeypointBranch(*self.detect_deployed(levels), self.points.deployed(levels))
