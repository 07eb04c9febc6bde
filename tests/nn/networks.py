"""The networks of all tasks, made alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from lucid_yolo.nn.backbone import Pyramid
from lucid_yolo.nn.blocks import ConvUnit
from lucid_yolo.nn.model import Detector, KeypointDetector, Network, ObbDetector, Scale, Segmenter

POINTS = 5
NETWORKS: dict[str, Callable[..., Network[Any, Any]]] = {
    "detect": Detector,
    "segment": Segmenter,
    "keypoints": lambda scale, num_classes, **settings: KeypointDetector(scale, num_classes, POINTS, **settings),
    "obb": ObbDetector,
}
GROUPS = {"segment": "coefficients", "keypoints": "points", "obb": "angles"}
"""What a head has beside detection's, by task."""


def make_network(task: str, scale: Scale, num_classes: int, **settings: bool) -> Network[Any, Any]:
    """A network with some number of key points."""
    return NETWORKS[task](scale, num_classes, **settings)


class ShortBackbone(nn.Module):
    """A layer for each level, where a test is not about backbone and neck: they have most of a network's operators."""

    def __init__(self, channels: tuple[int, int, int]) -> None:
        super().__init__()
        self.levels = nn.ModuleList(
            ConvUnit(3, c, 3, stride=stride) for c, stride in zip(channels, Network.strides, strict=True)
        )

    def forward(self, images: Tensor) -> Pyramid:
        return Pyramid(*(level(images) for level in self.levels))


class ShortNeck(nn.Module):
    """Mixes the channels of each level by itself."""

    def __init__(self, channels: tuple[int, int, int]) -> None:
        super().__init__()
        self.levels = nn.ModuleList(ConvUnit(c, c) for c in channels)

    def forward(self, *inputs: Tensor) -> Pyramid:
        return Pyramid(*(level(x) for level, x in zip(self.levels, inputs, strict=True)))


def shorten(network: Network[Any, Any]) -> None:
    """Leave little of a network but its head."""
    channels = network.neck.channels
    network.backbone, network.neck = ShortBackbone(channels), ShortNeck(channels)  # type: ignore[assignment]


def leaves(predictions: Any) -> list[Tensor]:
    """All tensors of nested predictions, in order."""
    return pytree.tree_leaves(predictions)
