"""The compiled objective on a CUDA device: one graph of Inductor, the losses of the eager run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from lucid_yolo.perf.compiled import CompiledLoss, CompiledObjective
from lucid_yolo.perf.objective import Objective
from tests.perf.objectives import make_batch, make_objective

pytestmark = pytest.mark.gpu
SIZE = 160


@pytest.fixture(autouse=True)
def exact_products() -> Iterator[None]:
    """TF32 would move the candidates of the assignment, and with them the losses by up to a tenth."""
    precision, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = convolutions


@pytest.mark.parametrize("option", ["loss", "step"])
def test_losses_and_gradients_of_the_eager_run_from_one_graph(option: str) -> None:
    network, loss = make_objective(SIZE, device="cuda")
    graph = CompiledLoss(loss) if option == "loss" else CompiledObjective(network, loss)
    compiled = Objective(network, graph) if option == "loss" else graph
    for batch, objects, rows in ((4, 5, 16), (4, 0, 16), (4, 1, 16), (8, 30, 32)):
        images, targets = make_batch(SIZE, batch=batch, objects=objects, rows=rows, device="cuda")
        found = []
        for objective in (compiled, lambda images, targets: loss(network(images), targets)):
            losses = objective(images, targets)
            losses.total.backward()
            gradients = torch.cat([p.grad.flatten() for p in network.parameters()])
            network.zero_grad()
            found.append((losses.total.item(), losses.parts.cpu(), gradients))
        (total, parts, gradients), (eager_total, eager_parts, eager_gradients) = found
        assert total == pytest.approx(eager_total, rel=1e-4)
        torch.testing.assert_close(parts, eager_parts, rtol=1e-3, atol=1e-5)
        assert (gradients - eager_gradients).norm() <= 1e-2 * eager_gradients.norm()
    assert (graph.outcome()["graphs"], graph.outcome()["recompiles"]) == (1, 0)
