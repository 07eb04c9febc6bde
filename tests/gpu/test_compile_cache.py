"""What torch.compile keeps on disk is found by the next process, and by nothing that computes something else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lucid_yolo.config.schema import CompileName
from lucid_yolo.perf.compiled import OneGraph

pytestmark = pytest.mark.gpu


class Scaled(torch.autograd.Function):
    """The identity, with a gradient of a given size."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: float) -> Tensor:
        ctx.slope = slope
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.slope, None


def test_a_graph_on_disk_serves_its_like_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def compiled(slope: float, *, bf16: bool) -> tuple[float, torch.dtype, Counter[str]]:
        def function(x: Tensor) -> Tensor:
            with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
                y: Tensor = Scaled.apply(x @ x.t(), slope)
                return y

        torch._dynamo.reset()
        counts = torch._dynamo.utils.counters["aot_autograd"]
        before = Counter(counts)
        x = torch.full((4, 3), 1.001, device="cuda", requires_grad=True)
        y = OneGraph(function, option=CompileName.LOSS, backend="inductor")(x)
        y.float().sum().backward()
        assert x.grad is not None
        return round(float(x.grad[0, 0])), y.dtype, Counter(counts) - before

    first, again = compiled(1.0, bf16=False), compiled(1.0, bf16=False)
    assert (first[:2], first[2]["autograd_cache_saved"]) == ((8, torch.float32), 1)
    assert (again[:2], again[2]["autograd_cache_hit"]) == ((8, torch.float32), 1)
    assert compiled(3.0, bf16=False)[:2] == (24, torch.float32)
    assert compiled(3.0, bf16=True)[:2] == (24, torch.bfloat16)
