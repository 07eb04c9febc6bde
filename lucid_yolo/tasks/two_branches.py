"""What all tasks share, because their networks share two branches with box and class stems."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, cast

from torch import nn

from lucid_yolo.data.index import SplitIndex
from lucid_yolo.nn.heads.detect import TwoBranchHead
from lucid_yolo.nn.heads.stems import Stem
from lucid_yolo.nn.model import Network
from lucid_yolo.ops.anchors import Anchors, make_anchors
from lucid_yolo.tasks.base import Decoder

if TYPE_CHECKING:
    from lucid_yolo.eval.columns import ImageDetections
    from lucid_yolo.eval.recall import Recall

ONE_TO_ONE = Decoder("one_to_one", "")
ONE_TO_MANY = Decoder("one_to_many", "_nms")


@lru_cache(maxsize=4)
def canvas_anchors(image_size: int) -> Anchors:
    """Anchor points of a canvas of ``image_size`` pixels a side, on the host."""
    return make_anchors(image_size, Network.strides)


class _BlendedBranches(Protocol):
    def set_epoch(self, epoch: int, max_epochs: int) -> None: ...


class TwoBranchTask:
    """The part of a ``Task`` that does not depend on what is learned beside boxes and classes."""

    __slots__ = ()

    def class_rows(self, model: nn.Module) -> tuple[str, ...]:
        """Weights and biases of the last convolution of each class stem."""
        head = cast(TwoBranchHead, model.head)
        stems = [cast(Stem, stem) for branch in (head.one_to_many, head.one_to_one) for stem in branch.cls]
        return names_of(model, (stem[-1] for stem in stems))

    def set_epoch(self, loss: nn.Module, epoch: int, max_epochs: int) -> None:
        """Set the weight of the two branches."""
        cast(_BlendedBranches, loss).set_epoch(epoch, max_epochs)

    def recalls(self, index: SplitIndex, detections: ImageDetections) -> dict[str, Recall]:
        """Objects whose box is found."""
        from lucid_yolo.eval.recall import recall_at  # noqa: PLC0415 - slow to import

        return {"recall_50": recall_at(index, detections)}


def names_of(model: nn.Module, modules: Iterable[nn.Module]) -> tuple[str, ...]:
    """Names of the parameters of some modules in a network that holds them, in its order."""
    wanted = {id(parameter) for module in modules for parameter in module.parameters()}
    return tuple(name for name, parameter in model.named_parameters() if id(parameter) in wanted)
