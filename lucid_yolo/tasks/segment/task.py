"""Instance segmentation as a task: which model, loss, decoders and metrics belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from torch import nn

from lucid_yolo.config.schema import ModelConfig
from lucid_yolo.config.tasks import SegmentTaskConfig, TaskConfig, TaskName
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import LabelKind, LabelSpec
from lucid_yolo.losses.segmentation import PART_NAMES, SegmentationLoss
from lucid_yolo.nn.model import Scale, Segmenter
from lucid_yolo.nn.predictions import BranchPredictions, SegmentPredictions
from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.letterbox import Letterbox
from lucid_yolo.tasks.base import Decoder, Task
from lucid_yolo.tasks.detect.decode import decode_boxes
from lucid_yolo.tasks.two_branches import ONE_TO_MANY, ONE_TO_ONE, TwoBranchTask, canvas_anchors, names_of

if TYPE_CHECKING:
    from lucid_yolo.eval.columns import ImageDetections
    from lucid_yolo.eval.metrics import SplitMetrics
    from lucid_yolo.eval.recall import Recall


@dataclass(frozen=True, slots=True)
class SegmentTask(TwoBranchTask):
    """Segmentation; see ``Task`` for what each attribute and method is."""

    name: TaskName = TaskName.SEGMENT
    labels: LabelKind = LabelKind.POLYGONS
    regions: Mapping[str, str] = field(
        default_factory=lambda: {
            "trunk": "network",
            **dict.fromkeys(("boxes", "coefficients", "fusion", "prototypes", "semantic"), "heads"),
        }
    )
    part_names: tuple[str, ...] = PART_NAMES
    metric_names: tuple[str, ...] = ("mask_ap", "mask_ap50", "box_ap", "box_ap50")
    primary: str = "mask_ap"
    decoders: tuple[Decoder, ...] = (ONE_TO_ONE, ONE_TO_MANY)

    def build_model(self, config: ModelConfig, spec: LabelSpec) -> Segmenter:
        """Build the network of a variant."""
        return Segmenter(Scale.from_config(config), spec.num_classes, detach_one_to_one=config.detach_one_to_one)

    def class_rows(self, model: nn.Module) -> tuple[str, ...]:
        """The last convolution of each class stem, and the one that gives the class maps."""
        maps = names_of(model, [cast(Segmenter, model).head.semantic])
        return (*TwoBranchTask.class_rows(self, model), *maps)

    def build_loss(self, config: TaskConfig, spec: LabelSpec, image_size: int) -> SegmentationLoss:
        """Build assignment and loss for a training canvas of ``image_size`` pixels."""
        loss = cast(SegmentTaskConfig, config).loss
        return SegmentationLoss(spec.num_classes, canvas_anchors(image_size), loss, config.assigner)

    def decode(
        self, decoder: Decoder, predictions: SegmentPredictions, letterboxes: Sequence[Letterbox], image_size: int
    ) -> list[Detections]:
        """Decode one branch as in detection, and mix the masks of what is left."""
        from lucid_yolo.tasks.segment.decode import to_segment_detections  # noqa: PLC0415 - training alone needs none

        branch = predictions.one_to_one if decoder == ONE_TO_ONE else predictions.one_to_many
        decoded = decode_boxes(decoder, BranchPredictions(*branch[:2]), canvas_anchors(image_size))
        return to_segment_detections(decoded, branch.coefficients, predictions.prototypes, letterboxes, image_size)

    def evaluate(self, index: SplitIndex, detections: ImageDetections) -> SplitMetrics:
        """COCO metrics of masks, and of boxes beside them, in the frame of the original pictures."""
        from lucid_yolo.eval.masks import evaluate_masks  # noqa: PLC0415 - slow to import

        return evaluate_masks(index, detections)

    def score(self, index: SplitIndex, detections: ImageDetections) -> SplitMetrics:
        """COCO metrics of masks, and of boxes beside them, over all areas."""
        from lucid_yolo.eval.masks import score_masks  # noqa: PLC0415 - slow to import

        return score_masks(index, detections)

    def recalls(self, index: SplitIndex, detections: ImageDetections) -> dict[str, Recall]:
        """Objects whose box is found, and those of some size whose mask is."""
        from lucid_yolo.eval.masks import recall_of_masks  # noqa: PLC0415 - slow to import

        return {**TwoBranchTask.recalls(self, index, detections), "mask_recall_50": recall_of_masks(index, detections)}

    def metric_values(self, metrics: SplitMetrics) -> dict[str, float]:
        """AP at IoU 0.50:0.95 and at 0.5 of masks and of boxes."""
        boxes = metrics.beside["box"]
        return {
            "mask_ap": metrics.main.ap,
            "mask_ap50": metrics.main.ap50,
            "box_ap": boxes.ap,
            "box_ap50": boxes.ap50,
        }


TASK: Task = SegmentTask()
