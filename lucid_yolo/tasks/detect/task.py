"""Detection as a task: which model, loss, decoders and metric belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lucid_yolo.config.schema import ModelConfig
from lucid_yolo.config.tasks import TaskConfig, TaskName
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import LabelKind, LabelSpec
from lucid_yolo.losses.detection import PART_NAMES, DetectionLoss
from lucid_yolo.nn.model import Detector, Scale
from lucid_yolo.nn.predictions import Predictions
from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.letterbox import Letterbox
from lucid_yolo.tasks.base import Decoder, Task
from lucid_yolo.tasks.detect.decode import decode_boxes, to_detections
from lucid_yolo.tasks.two_branches import ONE_TO_MANY, ONE_TO_ONE, TwoBranchTask, canvas_anchors

if TYPE_CHECKING:
    from lucid_yolo.eval.columns import ImageDetections
    from lucid_yolo.eval.metrics import SplitMetrics


@dataclass(frozen=True, slots=True)
class DetectTask(TwoBranchTask):
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

    def build_loss(self, config: TaskConfig, spec: LabelSpec, image_size: int) -> DetectionLoss:
        """Build assignment and loss for a training canvas of ``image_size`` pixels."""
        return DetectionLoss(spec.num_classes, canvas_anchors(image_size), config.loss, config.assigner)

    def decode(
        self, decoder: Decoder, predictions: Predictions, letterboxes: Sequence[Letterbox], image_size: int
    ) -> list[Detections]:
        """Decode one branch: the best anchors without suppression, or all of them with it."""
        branch = predictions.one_to_one if decoder == ONE_TO_ONE else predictions.one_to_many
        return to_detections(decode_boxes(decoder, branch, canvas_anchors(image_size)), letterboxes)

    def evaluate(self, index: SplitIndex, detections: ImageDetections) -> SplitMetrics:
        """COCO box metrics in the frame of the original pictures."""
        from lucid_yolo.eval.coco import evaluate_boxes  # noqa: PLC0415 - slow to import
        from lucid_yolo.eval.metrics import SplitMetrics  # noqa: PLC0415

        return SplitMetrics(evaluate_boxes(index, detections))

    def score(self, index: SplitIndex, detections: ImageDetections) -> SplitMetrics:
        """COCO box metrics over all areas."""
        from lucid_yolo.eval.coco import score_boxes  # noqa: PLC0415 - slow to import
        from lucid_yolo.eval.metrics import SplitMetrics  # noqa: PLC0415

        return SplitMetrics(score_boxes(index, detections))

    def metric_values(self, metrics: SplitMetrics) -> dict[str, float]:
        """AP at IoU 0.50:0.95 and at 0.5."""
        return {"box_ap": metrics.main.ap, "box_ap50": metrics.main.ap50}


TASK: Task = DetectTask()
