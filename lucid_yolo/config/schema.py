"""The typed configuration: what every key means, its type and its default. Imports no torch.

Option files in ``conf/`` hold values; the classes here hold names, types and defaults. Code below the command line
receives these classes (``OmegaConf.to_object``), never a ``DictConfig``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from lucid_yolo.config.choice import Choice
from lucid_yolo.config.tasks import KeypointTaskConfig, ObbTaskConfig, SegmentTaskConfig, TaskConfig


class PrecisionName(Choice):
    """Arithmetic of the training step; ``auto`` is bf16-mixed on a CUDA device that has it, else 32-true."""

    AUTO = "auto"
    FP32 = "32-true"
    BF16 = "bf16-mixed"
    FP16 = "16-mixed"


class OnUnmet(Choice):
    """What happens when a requested flag cannot be active: fall back with a warning, or raise."""

    FALLBACK = "fallback"
    RAISE = "raise"


class ExifOrientation(Choice):
    """Whether the EXIF orientation tag turns a picture; the same rule holds for training, validation and prediction."""

    APPLY = "apply"
    IGNORE = "ignore"


class BadImages(Choice):
    """What happens to an image that cannot be decoded: stop, or a blank picture without objects; both name it."""

    RAISE = "raise"
    SKIP = "skip"


class HsvName(Choice):
    """Who changes the colours of training pictures: a worker, or the device, with or without its fused kernel."""

    WORKER = "worker"
    DEVICE = "device"
    DEVICE_NATIVE = "device_native"


class CacheName(Choice):
    """Which training pictures are kept: none, as decoded from their files, or scaled to training resolution as well."""

    NONE = "none"
    DECODED = "decoded"
    PREPARED = "prepared"


class CachePlace(Choice):
    """Where kept pictures lie: in memory until the process ends, or in a file of the user's cache directory."""

    MEMORY = "memory"
    DISK = "disk"


class CompileName(Choice):
    """What torch.compile turns into kernels: nothing, assignment and losses, or these and the network."""

    NONE = "none"
    LOSS = "loss"
    STEP = "step"


class DepthwiseName(Choice):
    """Whose kernels compute depthwise convolutions: torch's, the project's own, or these where they can be built."""

    AUTO = "auto"
    STOCK = "stock"
    TRITON = "triton"


class KernelsName(Choice):
    """Whose kernels normalise, activate and pool in training: torch's, or the project's own."""

    STOCK = "stock"
    FUSED = "fused"


class PrefetchName(Choice):
    """How far ahead workers prepare batches: to the end of the epoch, or on into the next one."""

    NONE = "none"
    EPOCH = "epoch"


@dataclass
class ModelConfig:
    """Scale of the network (method table of arXiv 2602.14582)."""

    variant: str = MISSING
    depth: float = MISSING
    width: float = MISSING
    max_channels: int = MISSING
    detach_one_to_one: bool = False  # stop the gradient of the one-to-one branch at the neck (arXiv 2405.14458)
    init_from: str | None = None  # checkpoint or run directory whose averaged weights a new training starts from


@dataclass
class AugmentConfig:
    """Training augmentation. Probabilities are 0 to 1; ranges are symmetric around the identity."""

    mosaic: float = 1.0
    close_mosaic: int = 10  # epochs at the end without mosaic and mixup
    scale: float = 0.5
    translate: float = 0.1
    degrees: float = 0.0
    shear: float = 0.0
    flip_lr: float = 0.5
    flip_ud: float = 0.0
    mixup: float = 0.0
    hsv_h: float = 0.015
    hsv_s: float = 0.7
    hsv_v: float = 0.4
    transforms: list[Any] = field(
        default_factory=list
    )  # Albumentations: [{_target_: albumentations.Blur, p: 0.1}, ...]


@dataclass
class TaskEpochs:
    """Epochs of each task, where ``epochs`` of a recipe refers to them: ``${.by_task.${task.name}}``."""

    detect: int = 100
    segment: int = 100
    keypoints: int = 100
    obb: int = 100


@dataclass
class TaskWarmup:
    """Epochs of warm-up of each task, where ``warmup_epochs`` of a recipe refers to them."""

    detect: float = 3.0
    segment: float = 3.0
    keypoints: float = 3.0
    obb: float = 3.0


@dataclass
class TaskPictures:
    """Training pictures that are drawn for each task, where the number in ``data.options`` refers to them."""

    detect: int = 512
    segment: int = 512
    keypoints: int = 512
    obb: int = 512


@dataclass
class RecipeConfig:
    """Training length that suits the data; ``trainer`` and ``optimizer`` read it."""

    epochs: int = 100
    warmup_epochs: float = 3.0
    val_every: int = 5
    by_task: TaskEpochs = field(default_factory=TaskEpochs)
    warmup_by_task: TaskWarmup = field(default_factory=TaskWarmup)
    pictures_by_task: TaskPictures = field(default_factory=TaskPictures)


@dataclass
class DataConfig:
    """Where the data is and how it is read."""

    format: str = MISSING  # name of a module in lucid_yolo.data.readers
    root: str | None = None  # folder of the data set (or its data.yaml); relative to the working directory
    train: str | None = None  # annotation file or image list of a split, when the layout is not found by itself
    val: str | None = None
    test: str | None = None  # a run does not read this one; validate split=test does
    train_images: str | None = None  # image folder of a split, likewise
    val_images: str | None = None
    test_images: str | None = None
    image_size: int = 640  # pixels, a multiple of 32
    batch_size: int = 16
    val_batch_size: int | None = None  # null: batch_size
    num_workers: int | None = None  # null: chosen from cores and free shared memory
    exif_orientation: ExifOrientation = ExifOrientation.APPLY
    bad_images: BadImages = BadImages.RAISE
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    recipe: RecipeConfig = field(default_factory=RecipeConfig)
    options: dict[str, Any] = field(default_factory=dict)  # keyword arguments of the reader


@dataclass
class OptimizerConfig:
    """Settings that every optimizer and the learning-rate schedule share."""

    name: str = MISSING
    lr: float = MISSING
    weight_decay: float = 5e-4
    warmup_epochs: float = 3.0
    final_lr_ratio: float = 0.01


@dataclass
class MuSGDConfig(OptimizerConfig):
    """MuSGD: orthogonalized momentum for matrices (arXiv 2502.16982) plus SGD."""

    momentum: float = 0.95
    muon_weight: float = 0.5
    sgd_weight: float = 0.5
    newton_schulz_steps: int = 5


@dataclass
class SGDConfig(OptimizerConfig):
    """SGD with Nesterov momentum."""

    momentum: float = 0.937


@dataclass
class AdamWConfig(OptimizerConfig):
    """AdamW (arXiv 1711.05101)."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8


@dataclass
class PrecisionConfig:
    """Arithmetic of the training step."""

    name: PrecisionName = MISSING


@dataclass
class HsvConfig:
    """Where the colours of training pictures are changed; how much is ``data.augment.hsv_*``."""

    selected: HsvName = HsvName.WORKER


@dataclass
class CacheConfig:
    """Training pictures that are kept instead of decoded again; no setting but ``selected`` switches it on."""

    selected: CacheName = CacheName.NONE
    place: CachePlace = CachePlace.MEMORY


@dataclass
class RegionConfig:
    """One region of the training step that is recorded as a CUDA graph; no setting but ``selected`` switches it on."""

    selected: bool = False
    warmup: int = 3  # native steps before the one that is recorded


@dataclass
class StepConfig(RegionConfig):
    """All of the training step as one graph."""

    streams: int = 1  # that the stems of the head are computed on, side by side


@dataclass
class AutoConfig:
    """A trial that picks what to record; no setting but ``selected`` switches it on."""

    selected: bool = False
    steps: int = 24  # timed steps of each candidate
    timeout: float = 180.0  # seconds of the whole trial
    again: bool = False  # measure although this workload was measured on this machine before


@dataclass
class CaptureConfig:
    """Regions of the training step that are recorded and replayed, in the order in which options name them."""

    network: RegionConfig = field(default_factory=RegionConfig)
    heads: RegionConfig = field(default_factory=RegionConfig)
    loss: RegionConfig = field(default_factory=RegionConfig)
    gradient_norm: RegionConfig = field(default_factory=RegionConfig)
    orthogonalization: RegionConfig = field(default_factory=RegionConfig)
    updates: RegionConfig = field(default_factory=RegionConfig)
    step: StepConfig = field(default_factory=StepConfig)  # all of it as one graph
    auto: AutoConfig = field(default_factory=AutoConfig)  # whatever a trial finds fastest


@dataclass
class CompileConfig:
    """What torch.compile turns into kernels."""

    selected: CompileName = CompileName.NONE


@dataclass
class DepthwiseConfig:
    """Whose kernels compute depthwise convolutions."""

    selected: DepthwiseName = DepthwiseName.AUTO


@dataclass
class KernelsConfig:
    """Whose kernels normalise and activate the maps of convolution units in training."""

    selected: KernelsName = KernelsName.STOCK


@dataclass
class PrefetchConfig:
    """How far ahead training batches are prepared."""

    selected: PrefetchName = PrefetchName.NONE


@dataclass
class EmaConfig:
    """Exponential moving average of the weights: decay * (1 - exp(-updates / ramp))."""

    decay: float = 0.9999
    ramp: float = 2000.0


@dataclass
class TrainerConfig:
    """The loop."""

    max_epochs: int = MISSING
    val_every: int = MISSING  # epochs between validations; the last epoch is always validated
    accelerator: str = "auto"  # auto, cpu, cuda, mps
    devices: int = 1
    accumulate: int = 1  # batches a weight update
    clip_norm: float | None = 10.0  # null or <= 0: no clipping
    deterministic: bool = True
    log_every: int = 20  # steps between two reads of the device's loss buffer
    max_steps: int | None = None  # stop after this many updates (trials, benchmarks)
    save_seconds: float = 10.0  # between two writings of last.ckpt at the end of epochs; 0: it is written at each end
    patience: int | None = None  # validations without a better score after which the fit ends; null: it never does
    ema: EmaConfig = field(default_factory=EmaConfig)


@dataclass
class LoggerConfig:
    """What a run writes beside its checkpoints."""

    csv: bool = True
    tensorboard: bool = True
    pictures: bool = True
    progress: bool = True
    extra: list[Any] = field(
        default_factory=list
    )  # Lightning loggers: [{_target_: lightning.pytorch.loggers.MLFlowLogger}, ...]


@dataclass
class RootConfig:
    """A run."""

    task: TaskConfig = field(default_factory=TaskConfig)
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    hsv: HsvConfig = field(default_factory=HsvConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    capture: CaptureConfig = field(default_factory=CaptureConfig)
    compile: CompileConfig = field(default_factory=CompileConfig)
    depthwise: DepthwiseConfig = field(default_factory=DepthwiseConfig)
    kernels: KernelsConfig = field(default_factory=KernelsConfig)
    prefetch: PrefetchConfig = field(default_factory=PrefetchConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    seed: int = 0
    run_dir: str = MISSING
    resume: str | None = None  # a run directory to continue
    on_unmet: OnUnmet = OnUnmet.FALLBACK
    overrides: list[str] = field(default_factory=list)  # what this was composed from; written by compose, not by users


TASKS: dict[str, type[TaskConfig]] = {
    "detect": TaskConfig,
    "segment": SegmentTaskConfig,
    "keypoints": KeypointTaskConfig,
    "obb": ObbTaskConfig,
}
OPTIMIZERS: dict[str, type[OptimizerConfig]] = {"musgd": MuSGDConfig, "sgd": SGDConfig, "adamw": AdamWConfig}
KINDS: dict[str, Mapping[str, type[Any]]] = {"task": TASKS, "optimizer": OPTIMIZERS}
"""Groups whose options have settings of their own: the class of each option."""
