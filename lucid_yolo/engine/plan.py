"""The verb ``plan``: what a run would do, without running."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from omegaconf import DictConfig
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from lucid_yolo.bench.notebook import as_html, as_text
from lucid_yolo.config.compose import to_root
from lucid_yolo.config.schema import RootConfig
from lucid_yolo.data.readers.problems import counted
from lucid_yolo.engine.auto import foretell
from lucid_yolo.engine.prepare import prepare
from lucid_yolo.nn.complexity import Complexity, Deployable, count
from lucid_yolo.perf.plan import RunPlan


@dataclass(frozen=True)
class PlanReport:
    """A plan and the size of the model it would train.

    Attributes:
        plan: flags.
        model: parameters of both branches, operations of the deployed one.
        num_classes: classes of the data.
        image_size: training canvas in pixels.
        variant: scale of the network.
    """

    plan: RunPlan
    model: Complexity
    num_classes: int
    image_size: int
    variant: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Show the plan and one line about the model."""
        table: Table = self.plan.render()
        yield table
        yield model_line(self.variant, self.model, self.num_classes, self.image_size)

    def __str__(self) -> str:
        """Show the same as text."""
        return as_text(self)

    def _repr_html_(self) -> str:
        """Show the same in a notebook."""
        return as_html(self)


def model_line(variant: str, model: Complexity, num_classes: int, image_size: int) -> str:
    """Size of a model in a sentence."""
    return (
        f"model {variant}: {model.parameters / 1e6:.2f} M parameters (both branches), {model.flops / 1e9:.1f} GFLOPs "
        f"(deployed branch, {image_size} px, {counted(num_classes, 'class', 'classes')})"
    )


def plan(config: RootConfig | DictConfig) -> PlanReport:
    """Resolve a configuration without training.

    Raises:
        ConfigError: rules that refuse.
        DataError: the data cannot be read.
        RunError: the checkpoint of ``model.init_from`` cannot be used.
    """
    root = to_root(config)
    prepared = prepare(root)
    num_classes = prepared.train.num_classes
    model = prepared.task.build_model(root.model, prepared.train.spec)
    return PlanReport(
        plan=foretell(prepared),
        model=count(cast(Deployable, model), root.data.image_size),
        num_classes=num_classes,
        image_size=root.data.image_size,
        variant=root.model.variant,
    )
