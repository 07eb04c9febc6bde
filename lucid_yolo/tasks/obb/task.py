"""Oriented boxes as a task: which model, loss, decoders and metric belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from lucid_yolo.config.schema import ModelConfig
from lucid_yolo.config.tasks import ObbTaskConfig, TaskConfig, TaskName
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import LabelKind, LabelSpec
from lucid_yolo.losses.rotated import PART_NAMES, RotatedLoss
from lucid_yolo.nn.model import ObbDetector, Scale
from lucid_yolo.nn.predictions import ObbPredictions
from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.letterbox import Letterbox
from lucid_yolo.tasks.base import Decoder, Task
from lucid_yolo.tasks.obb.decode import decode_one_to_many, decode_one_to_one, to_detections
from lucid_yolo.tasks.two_branches import ONE_TO_MANY, ONE_TO_ONE, TwoBranchTask, canvas_anchors

if TYPE_CHECKING:
    from lucid_yolo.eval.columns import ImageDetections
    from lucid_yolo.eval.metrics import SplitMetrics


@dataclass(frozen=True, slots=True)
class ObbTask(TwoBranchTask):
    """Oriented boxes; see ``Task`` for what each attribute and method is."""

    name: TaskName = TaskName.OBB
    labels: LabelKind = LabelKind.CORNERS
    regions: Mapping[str, str] = field(default_factory=dict)
    part_names: tuple[str, ...] = PART_NAMES
    metric_names: tuple[str, ...] = ("rotated_ap", "rotated_ap50")
    primary: str = "rotated_ap"
    decoders: tuple[Decoder, ...] = (ONE_TO_ONE, ONE_TO_MANY)

    def build_model(self, config: ModelConfig, spec: LabelSpec) -> ObbDetector:
        """Build the network of a variant."""
        return ObbDetector(Scale.from_config(config), spec.num_classes, detach_one_to_one=config.detach_one_to_one)

    def build_loss(self, config: TaskConfig, spec: LabelSpec, image_size: int) -> RotatedLoss:
        """Build assignment and loss for a training canvas of ``image_size`` pixels."""
        settings = cast(ObbTaskConfig, config)
        return RotatedLoss(spec.num_classes, canvas_anchors(image_size), settings.loss, settings.assigner)

    def decode(
        self, decoder: Decoder, predictions: ObbPredictions, letterboxes: Sequence[Letterbox], image_size: int
    ) -> list[Detections]:
        """Decode one branch: the best anchors without suppression, or all of them with it."""
        if decoder == ONE_TO_ONE:
            decoded = decode_one_to_one(predictions.one_to_one, canvas_anchors(image_size))
        else:
            decoded = decode_one_to_many(predictions.one_to_many, canvas_anchors(image_size))
        return to_detections(decoded, letterboxes)

    def evaluate(self, index: SplitIndex, detections: ImageDetections) -> SplitMetrics:
        """Metrics of rotated boxes by their exact overlap, in the frame of the original pictures."""
        from lucid_yolo.eval.metrics import SplitMetrics  # noqa: PLC0415 - slow to import
        from lucid_yolo.tasks.obb.evaluate import evaluate_split  # noqa: PLC0415

        return SplitMetrics(evaluate_split(index, detections))

    def score(self, index: SplitIndex, detections: ImageDetections) -> SplitMetrics:
        """All metrics: none of them is about a range of areas."""
        return self.evaluate(index, detections)

    def metric_values(self, metrics: SplitMetrics) -> dict[str, float]:
        """AP at IoU 0.50:0.95 and at 0.5."""
        return {"rotated_ap": metrics.main.ap, "rotated_ap50": metrics.main.ap50}


TASK: Task = ObbTask()
