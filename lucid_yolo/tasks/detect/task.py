"""Detection as a task: which model, loss, decoders and metric belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from torch import nn

from lucid_yolo.config.schema import ModelConfig, TaskConfig, TaskName
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import LabelKind, LabelSpec
from lucid_yolo.losses.detection import PART_NAMES, DetectionLoss
from lucid_yolo.nn.heads.stems import Stem
from lucid_yolo.nn.model import Detector, Scale
from lucid_yolo.nn.predictions import Predictions
from lucid_yolo.ops.anchors import Anchors, make_anchors
from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.letterbox import Letterbox
from lucid_yolo.tasks.base import Decoder, Task
from lucid_yolo.tasks.detect.decode import decode_one_to_many, decode_one_to_one, to_detections

if TYPE_CHECKING:
    from lucid_yolo.eval.columns import ImageDetections
    from lucid_yolo.eval.metrics import SplitMetrics
    from lucid_yolo.eval.recall import Recall

ONE_TO_ONE = Decoder("one_to_one", "")
ONE_TO_MANY = Decoder("one_to_many", "_nms")


@lru_cache(maxsize=4)
def _anchors(image_size: int) -> Anchors:
    return make_anchors(image_size, Detector.strides)


@dataclass(frozen=True, slots=True)
class DetectTask:
    """Detection; see ``Task`` for what each attribute and method is."""

    name: TaskName = TaskName.DETECT
    labels: LabelKind = LabelKind.BOXES
    regions: Mapping[str, str] = field(default_factory=dict)
    part_names: tuple[str, ...] = PART_NAMES
    metric_names: tuple[str, ...] = ("box_ap", "box_ap50")
    primary: str = "box_ap"
    decoders: tuple[Decoder, ...] = (ONE_TO_ONE, ONE_TO_MANY)

    def build_model(self, config: ModelConfig, spec: LabelSpec) -> Detector:
        """Build the detector of a variant."""
        return Detector(Scale.from_config(config), spec.num_classes, detach_one_to_one=config.detach_one_to_one)

    def class_rows(self, model: nn.Module) -> tuple[str, ...]:
        """Weights and biases of the last convolution of each class stem."""
        head = cast(Detector, model).head
        stems = [cast(Stem, stem) for branch in (head.one_to_many, head.one_to_one) for stem in branch.cls]
        rows = {id(parameter) for stem in stems for parameter in stem[-1].parameters()}
        return tuple(name for name, parameter in model.named_parameters() if id(parameter) in rows)

    def build_loss(self, config: TaskConfig, spec: LabelSpec, image_size: int) -> DetectionLoss:
        """Build assignment and loss for a training canvas of ``image_size`` pixels."""
        return DetectionLoss(spec.num_classes, _anchors(image_size), config.loss, config.assigner)

    def set_epoch(self, loss: nn.Module, epoch: int, max_epochs: int) -> None:
        """Set the weight of the two branches."""
        cast(DetectionLoss, loss).set_epoch(epoch, max_epochs)

    def decode(
        self, decoder: Decoder, predictions: Predictions, letterboxes: Sequence[Letterbox], image_size: int
    ) -> list[Detections]:
        """Decode one branch: the best anchors without suppression, or all of them with it."""
        if decoder == ONE_TO_ONE:
            decoded = decode_one_to_one(predictions.one_to_one, _anchors(image_size))
        else:
            decoded = decode_one_to_many(predictions.one_to_many, _anchors(image_size))
        return to_detections(decoded, letterboxes)

    def evaluate(self, index: SplitIndex, detections: ImageDetections) -> SplitMetrics:
        """COCO box metrics in the frame of the original pictures."""
        from lucid_yolo.eval.coco import evaluate_boxes  # noqa: PLC0415 - slow to import
        from lucid_yolo.eval.metrics import SplitMetrics  # noqa: PLC0415

        return SplitMetrics(evaluate_boxes(index, detections))

    def recalls(self, index: SplitIndex, detections: ImageDetections) -> dict[str, Recall]:
        """Objects whose box is found."""
        from lucid_yolo.eval.recall import recall_at  # noqa: PLC0415 - slow to import

        return {"recall_50": recall_at(index, detections)}

    def metric_values(self, metrics: SplitMetrics) -> dict[str, float]:
        """AP at IoU 0.50:0.95 and at 0.5."""
        return {"box_ap": metrics.main.ap, "box_ap50": metrics.main.ap50}


TASK: Task = DetectTask()
