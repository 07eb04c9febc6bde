"""What the layers above ask of a task: model, loss, decoders and metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from torch import nn

from lucid_yolo.config.schema import ModelConfig
from lucid_yolo.config.tasks import TaskConfig, TaskName
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import LabelKind, LabelSpec
from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.letterbox import Letterbox

if TYPE_CHECKING:  # the evaluators are slow to import, and training alone needs none
    from lucid_yolo.eval.columns import ImageDetections
    from lucid_yolo.eval.metrics import SplitMetrics
    from lucid_yolo.eval.recall import Recall


@dataclass(frozen=True, slots=True)
class Decoder:
    """A way from raw predictions to detections.

    Attributes:
        name: as the user writes and reads it.
        suffix: of its metrics' names.
    """

    name: str
    suffix: str


class Task(Protocol):
    """A task. It holds no state: whoever needs a model or a loss builds one.

    Attributes:
        name: of the task.
        labels: what it learns of an object beside its box and class.
        regions: option of ``capture`` that records each part of its network; empty: ``network`` records it as a whole.
        part_names: terms of the loss, in the order of its ``parts``.
        metric_names: scores of one decoder, in the order in which they are shown.
        primary: the score, of the first decoder, by which the best checkpoint is chosen.
        decoders: the deployed one first.
    """

    @property
    def name(self) -> TaskName: ...  # noqa: D102 - the attributes are described above

    @property
    def labels(self) -> LabelKind: ...  # noqa: D102

    @property
    def regions(self) -> Mapping[str, str]: ...  # noqa: D102

    @property
    def part_names(self) -> tuple[str, ...]: ...  # noqa: D102

    @property
    def metric_names(self) -> tuple[str, ...]: ...  # noqa: D102

    @property
    def primary(self) -> str: ...  # noqa: D102

    @property
    def decoders(self) -> tuple[Decoder, ...]: ...  # noqa: D102

    def build_model(self, config: ModelConfig, spec: LabelSpec) -> nn.Module:
        """Build the network, which maps images (B, 3, S, S) to predictions."""
        ...

    def class_rows(self, model: nn.Module) -> tuple[str, ...]:
        """Names of the parameters of a network that have one row a class, in the order of the classes."""
        ...

    def build_loss(self, config: TaskConfig, spec: LabelSpec, image_size: int) -> nn.Module:
        """Build the objective, which maps predictions and ``Targets`` to ``total`` and ``parts``.

        Args:
            config: gains and rules of the assignment.
            spec: classes, and what else the labels ask for.
            image_size: side of the training canvas in pixels.
        """
        ...

    def set_epoch(self, loss: nn.Module, epoch: int, max_epochs: int) -> None:
        """Set what the objective changes from epoch to epoch, in place on its device.

        Args:
            loss: from ``build_loss``.
            epoch: running epoch, from 0.
            max_epochs: planned epochs.
        """
        ...

    def decode(
        self, decoder: Decoder, predictions: Any, letterboxes: Sequence[Letterbox], image_size: int
    ) -> list[Detections]:
        """Turn raw predictions into the detections of each picture, in its own frame.

        Args:
            decoder: one of ``decoders``.
            predictions: of a batch.
            letterboxes: placement of each picture of the batch.
            image_size: side of the canvas in pixels.
        """
        ...

    def evaluate(self, index: SplitIndex, detections: ImageDetections) -> SplitMetrics:
        """Score the detections of a split."""
        ...

    def score(self, index: SplitIndex, detections: ImageDetections) -> SplitMetrics:
        """Give the numbers of ``evaluate`` that ``metric_values`` picks from, in less time where others cost some."""
        ...

    def recalls(self, index: SplitIndex, detections: ImageDetections) -> dict[str, Recall]:
        """Count the objects that are found at IoU 0.5, by name: the figures of an overfit check."""
        ...

    def metric_values(self, metrics: SplitMetrics) -> dict[str, float]:
        """Pick the scores by name, one for each of ``metric_names``."""
        ...
