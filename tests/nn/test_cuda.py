from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from lucid_yolo.nn.max_pool import max_pool
from tests.nn.networks import NETWORKS, leaves, make_network
from tests.nn.scales import SCALES

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    yield
    torch.cuda.set_sync_debug_mode("default")
    torch.use_deterministic_algorithms(False)


def gradients(task: str, images: torch.Tensor, dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = make_network(task, SCALES["n"], 8).cuda().to(memory_format=torch.channels_last)
    torch.cuda.set_sync_debug_mode("error")
    with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32):
        loss = sum(t.float().square().mean() for t in leaves(model(images)))
    loss.backward()
    torch.cuda.set_sync_debug_mode("default")
    return [p.grad for p in model.parameters()] + list(model.buffers())


@pytest.mark.parametrize("task", NETWORKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_pass_is_reproducible_and_never_synchronises(task: str, dtype: torch.dtype) -> None:
    images = torch.rand(4, 3, 320, 320, device="cuda").to(memory_format=torch.channels_last)
    one, other = gradients(task, images, dtype), gradients(task, images, dtype)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_pool_equals_the_one_of_the_cpu(memory_format: torch.memory_format) -> None:
    x = torch.randint(4, (2, 8, 20, 20)).float().contiguous(memory_format=memory_format)
    grad = torch.randint(-9, 9, x.shape).float()
    results = []
    for device in ("cpu", "cuda"):
        leaf = x.to(device).detach().requires_grad_()
        y = max_pool(leaf, 5)
        y.backward(grad.to(device))
        results.append((y.cpu(), leaf.grad.cpu()))
        assert leaf.grad.stride() == leaf.stride()
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
