"""Key points as a task: which model, loss, decoders and metric belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from lucid_yolo.config.schema import ModelConfig
from lucid_yolo.config.tasks import KeypointTaskConfig, TaskConfig, TaskName
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.data.labels.base import KeypointSpec, LabelKind, LabelSpec
from lucid_yolo.losses.keypoints import PART_NAMES, KeypointLoss
from lucid_yolo.nn.model import KeypointDetector, Scale
from lucid_yolo.nn.predictions import BranchPredictions, KeypointPredictions
from lucid_yolo.ops.detections import Detections
from lucid_yolo.ops.keypoints import UNIFORM_SIGMA
from lucid_yolo.ops.letterbox import Letterbox
from lucid_yolo.tasks.base import Decoder, Task
from lucid_yolo.tasks.detect.decode import decode_boxes
from lucid_yolo.tasks.keypoints.decode import decode_points, to_keypoint_detections
from lucid_yolo.tasks.two_branches import ONE_TO_MANY, ONE_TO_ONE, TwoBranchTask, canvas_anchors

if TYPE_CHECKING:
    from lucid_yolo.eval.columns import ImageDetections
    from lucid_yolo.eval.metrics import SplitMetrics


@dataclass(frozen=True, slots=True)
class KeypointTask(TwoBranchTask):
    """Key points; see ``Task`` for what each attribute and method is."""

    name: TaskName = TaskName.KEYPOINTS
    labels: LabelKind = LabelKind.KEYPOINTS
    regions: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(("trunk", "boxes", "points"), "network"))
    part_names: tuple[str, ...] = PART_NAMES
    metric_names: tuple[str, ...] = ("oks_ap", "oks_ap50", "box_ap", "box_ap50")
    primary: str = "oks_ap"
    decoders: tuple[Decoder, ...] = (ONE_TO_ONE, ONE_TO_MANY)

    def build_model(self, config: ModelConfig, spec: LabelSpec) -> KeypointDetector:
        """Build the network of a variant for the points of a data set."""
        return KeypointDetector(
            Scale.from_config(config),
            spec.num_classes,
            len(_points(spec)),
            detach_one_to_one=config.detach_one_to_one,
        )

    def build_loss(self, config: TaskConfig, spec: LabelSpec, image_size: int) -> KeypointLoss:
        """Build assignment and loss for a training canvas of ``image_size`` pixels."""
        settings, points = cast(KeypointTaskConfig, config), _points(spec)
        sigmas = points.sigmas or (UNIFORM_SIGMA,) * len(points)
        return KeypointLoss(spec.num_classes, sigmas, canvas_anchors(image_size), settings.loss, settings.assigner)

    def decode(
        self, decoder: Decoder, predictions: KeypointPredictions, letterboxes: Sequence[Letterbox], image_size: int
    ) -> list[Detections]:
        """Decode one branch: the best anchors without suppression, or all of them with it."""
        anchors = canvas_anchors(image_size)
        branch = predictions.one_to_one if decoder == ONE_TO_ONE else predictions.one_to_many
        decoded = decode_boxes(decoder, BranchPredictions(*branch[:2]), anchors)
        return to_keypoint_detections(decoded, decode_points(decoded, branch.points, anchors), letterboxes)

    def evaluate(self, index: SplitIndex, detections: ImageDetections) -> SplitMetrics:
        """COCO metrics of key points, and of boxes beside them, in the frame of the original pictures."""
        from lucid_yolo.eval.keypoints import evaluate_keypoints  # noqa: PLC0415 - slow to import

        return evaluate_keypoints(index, detections)

    def score(self, index: SplitIndex, detections: ImageDetections) -> SplitMetrics:
        """COCO metrics of key points, and of boxes beside them, over all areas."""
        from lucid_yolo.eval.keypoints import score_keypoints  # noqa: PLC0415 - slow to import

        return score_keypoints(index, detections)

    def metric_values(self, metrics: SplitMetrics) -> dict[str, float]:
        """AP at OKS 0.50:0.95 and at 0.5, and the same at IoU."""
        box = metrics.beside["box"]
        return {"oks_ap": metrics.main.ap, "oks_ap50": metrics.main.ap50, "box_ap": box.ap, "box_ap50": box.ap50}


def _points(spec: LabelSpec) -> KeypointSpec:
    assert spec.keypoints is not None  # a reader of key points has refused data without them
    return spec.keypoints


TASK: Task = KeypointTask()
