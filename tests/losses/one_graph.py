"""A compiled loss against the loss itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lucid_yolo.data.batch import Targets


def assert_one_graph_serves(
    loss: nn.Module, batches: Iterable[tuple[Any, Targets]], sources: Callable[[Any], Sequence[Tensor]]
) -> None:
    """Compile a loss without breaks: the bits of the loss, from one graph for the first size and one for any other.

    Args:
        loss: an objective.
        batches: predictions and targets, of several sizes.
        sources: what gradients are compared of, from predictions.
    """
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # an earlier test of this process may have compiled as well
    compiled = torch.compile(loss, fullgraph=True, backend="eager", dynamic=None)
    graphs = torch._dynamo.utils.counters["stats"]
    for predictions, targets in batches:
        expected, got = loss(predictions, targets), compiled(predictions, targets)
        assert got.total.item() == expected.total.item()
        assert torch.equal(got.parts, expected.parts)
        gradients = torch.autograd.grad(got.total, sources(predictions))
        for a, b in zip(gradients, torch.autograd.grad(expected.total, sources(predictions)), strict=True):
            assert torch.equal(a, b)
    assert graphs["unique_graphs"] <= 2
