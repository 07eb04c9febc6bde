"""The detection head, and what every other head shares with it: two branches of box and class stems over three levels.

Other heads make their further stems after these, so that one seed gives all of them the same box and class stems.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from lucid_yolo.nn.heads.stems import Stem, class_stem, class_width, flatten_levels, hidden_width, separate
from lucid_yolo.nn.lanes import Laned
from lucid_yolo.nn.parts import Part, PartCaller, directly
from lucid_yolo.nn.predictions import BranchPredictions, Predictions


class DetectBranch(Laned):
    """Box and class stems of one branch."""

    def __init__(self, channels: Sequence[int], num_classes: int) -> None:
        super().__init__()
        self.box = nn.ModuleList(Stem(c, hidden_width(c), 4) for c in channels)
        self.cls = nn.ModuleList(class_stem(c, class_width(c), num_classes) for c in channels)

    def forward(self, levels: Sequence[Tensor]) -> BranchPredictions:
        """Map features, finest first, to raw predictions over all anchors."""
        box, cls = (flatten_levels(stems, levels, self.lanes) for stems in (self.box, self.cls))
        return BranchPredictions(box, cls)


class TwoBranchHead(Laned):
    """A one-to-many and a one-to-one branch with parameters of their own (arXiv 2405.14458).

    Args:
        channels: channels of the levels, finest first.
        num_classes: number of classes.
        detach_one_to_one: stop the one-to-one branch's gradient at its input.
    """

    def __init__(self, channels: Sequence[int], num_classes: int, *, detach_one_to_one: bool) -> None:
        super().__init__()
        self.detach_one_to_one = detach_one_to_one
        self.one_to_many = DetectBranch(channels, num_classes)
        self.one_to_one = DetectBranch(channels, num_classes)

    @property
    def boxes(self) -> Part:
        """The part of box and class stems."""
        return Part("boxes", (self.one_to_many, self.one_to_one), self.detect)

    def detect(self, levels: Sequence[Tensor]) -> Predictions:
        """Map features, finest first, to boxes and class logits of both branches."""
        return Predictions(self.one_to_many(levels), self.one_to_one(separate(levels, detach=self.detach_one_to_one)))

    def detect_deployed(self, levels: Sequence[Tensor]) -> BranchPredictions:
        """Map features, finest first, to boxes and class logits of the one-to-one branch."""
        predictions: BranchPredictions = self.one_to_one(levels)
        return predictions


class DetectHead(TwoBranchHead):
    """Boxes and classes; see ``TwoBranchHead``."""

    def compute(self, levels: Sequence[Tensor], call: PartCaller) -> Predictions:
        """Do what ``forward`` does, each part by way of ``call``."""
        self.lanes.fork()
        predictions: Predictions = call(self.boxes, levels)
        return predictions

    def forward(self, levels: Sequence[Tensor]) -> Predictions:
        """Map features, finest first, to the raw predictions of both branches."""
        return self.compute(levels, directly)

    def deployed(self, levels: Sequence[Tensor]) -> BranchPredictions:
        """Map features, finest first, to the raw predictions of the one-to-one branch."""
        self.lanes.fork()
        return self.detect_deployed(levels)
