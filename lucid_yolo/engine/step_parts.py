"""What takes over parts of the step: recordings, compiled functions and kernels, for as long as the fit lasts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning as L

from lucid_yolo.config.regions import REGIONS, STEP
from lucid_yolo.config.schema import CompileName, KernelsName, RootConfig
from lucid_yolo.engine.datamodule import TrainData
from lucid_yolo.engine.module import TrainingModule
from lucid_yolo.engine.transfer import CopyBeside, copy_in_order
from lucid_yolo.nn.cast import CastOnce
from lucid_yolo.nn.depthwise import forget_filters, set_filters
from lucid_yolo.nn.lanes import forget_lanes, set_lanes
from lucid_yolo.optim.clip import clip_gradients
from lucid_yolo.optim.flat import FlatOptimizer
from lucid_yolo.perf.capture.lanes import StreamLanes
from lucid_yolo.perf.capture.recorder import Recorder
from lucid_yolo.perf.capture.step import RecordedStep
from lucid_yolo.perf.capture.tape import CudaTape, Tape
from lucid_yolo.perf.compiled import CompiledLoss, CompiledObjective
from lucid_yolo.perf.depthwise import TritonFilters, plan_filters
from lucid_yolo.perf.fused import FusedKernels, withdraw_kernels
from lucid_yolo.perf.objective import Objective
from lucid_yolo.perf.plan import RunPlan, Scalar
from lucid_yolo.perf.setup import Built, judge_setup


class StepParts(L.Callback):
    """Puts recorded or compiled parts in the place of the step's own, for one fit.

    Args:
        plan: what is active.
        config: the run.
        tape: records; default: CUDA graphs.
        backend: makes code of what is compiled, a name that torch.compile knows.

    Attributes:
        plan: what is active after a look at what was built.
    """

    def __init__(
        self, plan: RunPlan, config: RootConfig, tape: Tape | None = None, *, backend: str = "inductor"
    ) -> None:
        self.plan = plan
        self._config = config
        self._tape = tape
        self._backend = backend
        self._recorder: Recorder | None = None
        self._whole: RecordedStep | None = None
        self._data: TrainData | None = None
        self._compiled: CompiledObjective[Any, Any] | CompiledLoss[Any, Any] | None = None
        self._fused: FusedKernels | None = None
        self._filters: TritonFilters | None = None

    def outcomes(self) -> Mapping[str, Mapping[str, Scalar]]:
        """What happened, by row of the plan."""
        return {
            **(self._recorder.outcomes() if self._recorder is not None else {}),
            **({f"capture.{STEP}": self._whole.outcome()} if self._whole is not None else {}),
            **({"compile": self._compiled.outcome()} if self._compiled is not None else {}),
            **({"kernels": self._fused.outcome()} if self._fused is not None else {}),
            **({"depthwise": self._filters.outcome()} if self._filters is not None else {}),
        }

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Install the parts; each is recorded or compiled when it is first called."""
        assert isinstance(pl_module, TrainingModule)
        self.plan = judge_setup(self.plan, built(self._config, trainer, pl_module))
        self._compile(pl_module)
        if self.plan["kernels"].active == KernelsName.FUSED:
            self._fused = FusedKernels(pl_module.device, self._config.on_unmet)
            self._fused.provide(pl_module.model)
        self._filters = plan_filters(self.plan, self._config)
        if self._filters is not None:
            for network in (pl_module.model, pl_module.ema.module):
                set_filters(network, self._filters)
        active = [name for name in REGIONS if self.plan[f"capture.{name}"].active]
        if self.plan[f"capture.{STEP}"].active:
            self._record_whole(pl_module, trainer)
        elif active:
            self._record(pl_module, {name: getattr(self._config.capture, name).warmup for name in active})

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Drop the recordings."""
        self._end(pl_module)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Drop the recordings."""
        self._end(pl_module)

    def _compile(self, module: TrainingModule) -> None:
        match self.plan["compile"].active:
            case CompileName.STEP:
                module.objective = self._compiled = CompiledObjective(module.model, module.loss, backend=self._backend)
            case CompileName.LOSS:
                self._compiled = CompiledLoss(module.loss, backend=self._backend)
                module.objective = Objective(CastOnce(module.model), self._compiled)

    def _record_whole(self, module: TrainingModule, trainer: L.Trainer) -> None:
        settings, device = self._config.capture.step, module.device
        compiled = isinstance(self._compiled, CompiledObjective)  # such a network has one stream
        if settings.streams > 1 and device.type == "cuda" and not compiled:
            set_lanes(module.model, StreamLanes(device, settings.streams))
        if device.type == "cuda":
            data = trainer.datamodule  # type: ignore[attr-defined]
            assert isinstance(data, TrainData)
            data.transfer, self._data = CopyBeside(device), data
        tape = self._tape or CudaTape(device)
        module.step = self._whole = RecordedStep(module, tape=tape, device=device, warmup=settings.warmup)

    def _record(self, module: TrainingModule, warmup: Mapping[str, int]) -> None:
        optimizer = module.optimizer
        assert isinstance(optimizer, FlatOptimizer)
        self._recorder = recorder = Recorder(
            self._tape or CudaTape(module.device),
            device=module.device,
            parameters=[p for group in optimizer.param_groups for p in group["params"]],
            warmup=warmup,
        )
        if not isinstance(self._compiled, CompiledObjective):
            network = recorder.network(module.model, module.task.regions)
            module.objective = Objective(network, self._compiled or recorder.loss(module.loss))
        module.clip = recorder.clip(clip_gradients)
        recorder.attach(optimizer)

    def _end(self, module: L.LightningModule) -> None:
        assert isinstance(module, TrainingModule)
        if self._recorder is not None:
            self._recorder.close()
        if self._whole is not None:
            self._whole.close()
        forget_lanes(module.model)
        withdraw_kernels(module.model)
        for network in (module.model, module.ema.module):
            forget_filters(network)
        if self._data is not None:
            self._data.transfer = copy_in_order
        module.step = module.compute_losses
        module.objective = module.eager_objective()
        module.clip = clip_gradients


def built(config: RootConfig, trainer: L.Trainer, module: TrainingModule) -> Built:
    """The objects of a fit, for the rules that look at them."""
    return Built(
        config=config,
        network=module.model,
        loss=module.loss,
        optimizer=module.optimizer,
        module=module,
        module_class=TrainingModule,
        callbacks=trainer.callbacks,  # type: ignore[attr-defined]
        precision=trainer.precision_plugin,
        device=module.device,
    )
