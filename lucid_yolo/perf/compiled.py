"""What torch.compile takes over: the losses (``compile=loss``), or network, assignment and losses (``compile=step``).

A function is compiled and no module: parameter names, state dict, averaged weights and checkpoints stay what they
are. Compiling the network alone would leave out the assignment and the losses, where the many small kernels are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FunctionType
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from lucid_yolo.config.errors import RunError
from lucid_yolo.config.schema import CompileName
from lucid_yolo.data.batch import Targets
from lucid_yolo.perf.capture.values import flatten
from lucid_yolo.perf.objective import Mark, Objective, unheard
from lucid_yolo.perf.plan import Scalar
from lucid_yolo.perf.warning import warn_user

Predicted = TypeVar("Predicted")
Losses = TypeVar("Losses")

# torch keeps a graph on disk only when it knows all that is called in it. It does not know these two, which are fully
# described by their arguments, and those are part of the key that it keeps the graph under.
_KNOWN_BY_ARGUMENTS = ("torch.amp.autocast_mode._enter_autocast", "torch.amp.autocast_mode._exit_autocast")


class OneGraph(Generic[Losses]):
    """A function compiled into one graph.

    The first dimension of every tensor is dynamic: one graph serves every number of images and of target rows, with
    and without objects. Dynamo makes a graph of its own for a size of 0 or 1 whatever it is told; rows come in bucket
    sizes, which are larger, so that only a batch of one image meets this. Another precision or mode makes another
    graph.

    Args:
        function: of tensors and nested values of them.
        option: of ``compile``, for messages.
        backend: what makes code of the graph, a name that torch.compile knows.

    Attributes:
        inactive: why the function is called as it is by now; empty while it is compiled.
    """

    def __init__(self, function: Callable[..., Losses], *, option: CompileName, backend: str) -> None:
        self.inactive = ""
        self._function = function
        self._option = f"compile={option}"
        self._backend = backend
        self._graphs = 0
        self._seconds = 0.0
        self._compiled: Callable[..., Losses] = torch.compile(
            with_own_code(function), backend=self._count_graph, fullgraph=True
        )

    def __call__(self, *inputs: Any) -> Losses:
        """Do what the function does.

        Raises:
            RunError: the graph cannot be made.
        """
        if self.inactive:
            return self._function(*inputs)
        for tensor in flatten(inputs)[0]:
            if tensor.shape[0] > 1:
                torch._dynamo.mark_dynamic(tensor, 0)
        graphs, begun = self._graphs, time.perf_counter()
        try:
            return self._compiled(*inputs)
        except torch._dynamo.exc.FailOnRecompileLimitHit:
            self._retire()
            return self._function(*inputs)
        except torch._dynamo.exc.TorchDynamoException as error:
            reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise RunError(f"{self._option} failed: {reason} Set compile=none to train without it.") from error
        finally:
            if self._graphs > graphs:
                self._seconds += time.perf_counter() - begun

    def outcome(self) -> Mapping[str, Scalar]:
        """What happened, for the run plan: graphs, recompilations, seconds of compiling, why it stopped if it did."""
        found: dict[str, Scalar] = {
            "graphs": self._graphs,
            "recompiles": max(self._graphs - 1, 0),
            "setup_seconds": round(self._seconds, 3),
        }
        return {**found, "inactive": self.inactive} if self.inactive else found

    def _count_graph(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        self._graphs += 1
        make: Callable[..., Any] = torch._dynamo.lookup_backend(self._backend)
        with kept_on_disk():
            code: Callable[..., Any] = make(graph, inputs)
        return code

    def _retire(self) -> None:
        limit = torch._dynamo.config.recompile_limit
        self.inactive = f"torch.compile reached its limit of {limit} graphs for one function"
        warn_user(
            f"{self._option} is not active any more: {self.inactive}, the run goes on without it. "
            "TORCH_LOGS=recompiles tells what changed from step to step."
        )


class CompiledObjective(Generic[Predicted, Losses]):
    """Computes ``loss(model(images), targets)`` from a compiled graph.

    Args:
        model: network; called with images.
        loss: objective; called with what the network returns and the targets.
        backend: what makes code of the graph, a name that torch.compile knows.
    """

    def __init__(
        self,
        model: Callable[[Tensor], Predicted],
        loss: Callable[[Predicted, Targets], Losses],
        *,
        backend: str = "inductor",
    ) -> None:
        self._model = model
        self._loss = loss
        self._otherwise: Callable[..., Losses] = Objective(model, loss)
        self._backend = backend

        def objective(images: Tensor, targets: Targets) -> Losses:
            return loss(model(images), targets)

        self._graph = OneGraph(objective, option=CompileName.STEP, backend=backend)

    def __call__(self, images: Tensor, targets: Targets, mark: Mark = unheard) -> Losses:
        """Compute the losses of a batch, with gradients.

        Args:
            images: (B, 3, S, S), as the network takes them.
            targets: packed objects, T rows.
            mark: hears when all of it is done: network and loss are one graph.

        Returns:
            What the objective returns.

        Raises:
            RunError: the graph cannot be made.
        """
        if self._graph.inactive:
            return self._otherwise(images, targets, mark)
        losses = self._graph(images, targets)
        mark("forward")
        return losses

    def outcome(self) -> Mapping[str, Scalar]:
        """What happened, for the run plan."""
        return self._graph.outcome()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as the same of the modules, not compiled yet."""
        return partial(CompiledObjective, backend=self._backend), (self._model, self._loss)


class CompiledLoss(Generic[Predicted, Losses]):
    """Computes ``loss(predictions, targets)`` from a compiled graph; the network is left alone.

    Args:
        loss: objective; called with what the network returns and the targets.
        backend: what makes code of the graph, a name that torch.compile knows.
    """

    def __init__(self, loss: Callable[[Predicted, Targets], Losses], *, backend: str = "inductor") -> None:
        self._loss = loss
        self._backend = backend

        def losses_of(predictions: Predicted, targets: Targets) -> Losses:
            return loss(predictions, targets)

        self._graph = OneGraph(losses_of, option=CompileName.LOSS, backend=backend)

    def __call__(self, predictions: Predicted, targets: Targets) -> Losses:
        """Compute the losses of predictions, with gradients.

        Raises:
            RunError: the graph cannot be made.
        """
        return self._graph(predictions, targets)

    def outcome(self) -> Mapping[str, Scalar]:
        """What happened, for the run plan."""
        return self._graph.outcome()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as the same of the loss, not compiled yet."""
        return partial(CompiledLoss, backend=self._backend), (self._loss,)


@contextmanager
def kept_on_disk() -> Iterator[None]:
    """Have torch keep what it compiles meanwhile where the next run finds it, precision switches and all.

    Without this, a graph that switches autocast or has backward passes of its own is traced and lowered anew in every
    process; only the code of its kernels is kept. The code of such backward passes is in the key like all else.
    """
    from torch._functorch import config as of_autograd  # noqa: PLC0415 - as torch.compile does, with its first graph
    from torch._inductor import config as of_inductor  # noqa: PLC0415 - likewise

    known = {**of_inductor.unsafe_marked_cacheable_functions, **dict.fromkeys(_KNOWN_BY_ARGUMENTS, torch.__version__)}
    with (
        of_inductor.patch(unsafe_marked_cacheable_functions=known),
        of_autograd.patch(autograd_cache_allow_custom_autograd_functions=True),
    ):
        yield


def with_own_code(function: Callable[..., Losses]) -> Callable[..., Losses]:
    """Copy a function together with its code object.

    Dynamo keeps graphs, and counts them against its limit, by code object: fits of one process must not share one.
    """
    assert isinstance(function, FunctionType)
    copy: Callable[..., Losses] = FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__, None, function.__closure__
    )
    return copy
