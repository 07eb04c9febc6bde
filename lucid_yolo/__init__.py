"""Train YOLO26-style models and measure every performance flag.

In a notebook::

    import lucid_yolo as ly
    cfg = ly.compose(["model=s", "trainer.max_epochs=5"])
    ly.plan(cfg)
    result = ly.train(cfg)
    ly.predict(result.checkpoint, "photo.jpg").show()
    ly.compare({"eager": [], "cached": ["cache=decoded"]}, ["data=coco", "data.root=/data/coco"])

Importing this package imports neither torch nor Hydra: each function does when it is called.
"""

# ruff: noqa: PLC0415 - every import of a function below is late on purpose

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning import Callback
    from omegaconf import DictConfig

    from lucid_yolo.bench.comparison import Comparison
    from lucid_yolo.bench.step_profile import StepProfile
    from lucid_yolo.config.schema import RootConfig
    from lucid_yolo.engine.plan import PlanReport
    from lucid_yolo.engine.predict import Predictions
    from lucid_yolo.engine.report import TrainResult
    from lucid_yolo.engine.validate import ValidationReport

__all__ = ["__version__", "compare", "compose", "plan", "predict", "profile", "train", "validate"]

UNKNOWN_VERSION = "0+unknown"
try:
    __version__ = metadata.version("lucid-yolo-lab")
except metadata.PackageNotFoundError:  # a checkout that is not installed
    __version__ = UNKNOWN_VERSION


def __dir__() -> list[str]:
    """The public names only."""
    return sorted(__all__)


def compose(overrides: Sequence[str] = (), *, config_dir: str | None = None) -> DictConfig:
    """Compose the configuration of a run.

    Args:
        overrides: as on the command line, such as ``["model=s", "trainer.max_epochs=5"]``; ``resume=DIRECTORY``
            continues a run.
        config_dir: a folder with option files of your own, relative to the working directory.

    Returns:
        typed configuration that refuses unknown keys; edit it or hand it to ``plan`` and ``train``.

    Raises:
        ConfigError: everything that is wrong with the overrides and with your option files.
        RunError: there is nothing to resume.
    """
    from lucid_yolo.config import compose as composing

    return composing.compose(overrides, config_dir=config_dir)


def plan(config: DictConfig | RootConfig | Sequence[str]) -> PlanReport:
    """Say what a training would do and which flags would be active, without running it.

    Args:
        config: what ``compose`` returned, or a list of overrides.

    Raises:
        ConfigError: the configuration is refused.
        DataError: the data cannot be used.
    """
    from lucid_yolo.config import compose as composing
    from lucid_yolo.engine import plan as engine

    return engine.plan(composing.as_config(config))


def train(config: DictConfig | RootConfig | Sequence[str], *, callbacks: Sequence[Callback] = ()) -> TrainResult:
    """Train a model into a run directory.

    Args:
        config: what ``compose`` returned; values may have been edited since. Or a list of overrides.
        callbacks: further Lightning callbacks.

    Returns:
        status, metrics, checkpoint, plan and timing; status is "interrupted" after an interruption.

    Raises:
        ConfigError: the configuration is refused.
        DataError: the data cannot be used.
        RunError: the run cannot start, or failed.
    """
    from lucid_yolo.config import compose as composing

    composed = composing.as_config(config)
    root = composing.to_root(composed)
    if composed is config:
        root.overrides = composing.overrides_of(composed)  # with what was edited since, so that the run can be resumed
    from lucid_yolo.engine import train as engine

    return engine.train(root, callbacks=callbacks)


def validate(checkpoint: str | PathLike[str], **settings: Any) -> ValidationReport:
    """Score a checkpoint on a data set.

    Args:
        checkpoint: file or run directory.
        **settings: fields of ``ValidateConfig``, such as ``split="train"`` or ``root="/data/coco"``.

    Raises:
        ConfigError: a setting is unknown or wrong.
        RunError: the checkpoint cannot be used.
        DataError: the data cannot be used.
    """
    from lucid_yolo.config import verbs

    config = verbs.make_settings(verbs.ValidateConfig, {"checkpoint": checkpoint, **settings})
    from lucid_yolo.engine import validate as engine

    return engine.validate(config)


def predict(checkpoint: str | PathLike[str], source: Any, **settings: Any) -> Predictions:
    """Find objects in images.

    Args:
        checkpoint: file or run directory.
        source: image file, folder, pattern, (H, W, 3) uint8 RGB pixels, or a list of these.
        **settings: fields of ``PredictConfig``, such as ``confidence=0.5``; ``out=FOLDER`` writes the results,
            ``tile=1024`` cuts larger pictures into tiles.

    Returns:
        one prediction a picture, each with ``detections``, ``overlay()`` and ``show()``.

    Raises:
        ConfigError: a setting is unknown or wrong.
        RunError: the checkpoint or the output folder cannot be used.
        DataError: a picture cannot be found or read.
    """
    from lucid_yolo.config import verbs

    config = verbs.make_settings(verbs.PredictConfig, {"checkpoint": checkpoint, "source": source, **settings})
    from lucid_yolo.engine import predict as engine

    return engine.predict(config)


def compare(
    arms: str | Mapping[str, Sequence[str]] | None = None, overrides: Sequence[str] = (), **settings: Any
) -> Comparison:
    """Time arms against a baseline in pairs, each run in a process of its own.

    Args:
        arms: overrides of each arm by name, the first being the baseline; or the name or file of a workload.
        overrides: of all arms.
        **settings: fields of ``CompareConfig``, such as ``blocks=5``, ``out=FOLDER``, or ``runs=FOLDER`` for runs that
            exist already.

    Returns:
        paired ratios with spread and verdict; shows its table in a notebook.

    Raises:
        ConfigError: the settings, the workload or the baseline's overrides are wrong.
        RunError: the baseline cannot run, or the directory cannot be used.
    """
    from lucid_yolo.config import compose as composing
    from lucid_yolo.config import verbs, workloads

    composing.check_lines(overrides)
    workloads.check_arms(arms)
    named = {"workload": arms} if isinstance(arms, str) else {}
    config = verbs.make_settings(verbs.CompareConfig, {**named, **settings})
    from lucid_yolo.bench import compare as bench

    return bench.compare(config, overrides, arms=arms if isinstance(arms, Mapping) else None)


def profile(config: DictConfig | RootConfig | Sequence[str], **settings: Any) -> StepProfile:
    """Show where the time of a training step goes, on a few dozen steps of a training.

    Args:
        config: what ``compose`` returned, or a list of overrides.
        **settings: fields of ``ProfileConfig``, such as ``steps=40`` or ``out="profile.json"``.

    Returns:
        milliseconds by part, waiting, launches and synchronisations; shows its table in a notebook.

    Raises:
        ConfigError: the configuration or a setting is refused.
        DataError: the data cannot be used.
        RunError: the fit failed.
    """
    from lucid_yolo.config import compose as composing
    from lucid_yolo.config import verbs

    made, config = verbs.make_settings(verbs.ProfileConfig, settings), composing.as_config(config)
    from lucid_yolo.engine import profile as engine

    return engine.profile(config, made)
