"""The networks of all tasks, made alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

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


def leaves(predictions: Any) -> list[Tensor]:
    """All tensors of nested predictions, in order."""
    return pytree.tree_leaves(predictions)
