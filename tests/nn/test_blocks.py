from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from lucid_yolo.nn.blocks import C2PSA, SPPF, Attention, BatchNorm2d, Bottleneck, C3k2, ConvUnit


def randomized(module: nn.Module) -> nn.Module:
    """Give every normalisation statistics and weights that are not neutral."""
    generator = torch.Generator().manual_seed(0)
    for part in module.modules():
        if isinstance(part, BatchNorm2d):
            for value in (part.weight, part.bias, part.running_mean, part.running_var):
                value.data = torch.rand(value.shape, generator=generator) + 0.5
    return module.eval()


def test_convolution_unit_by_hand() -> None:
    unit = randomized(ConvUnit(1, 1, 3, stride=2))
    x = np.arange(16, dtype=np.float64).reshape(4, 4) / 10
    kernel = unit.conv.weight.detach().numpy()[0, 0].astype(np.float64)
    edged = np.pad(x, 1)
    y = np.array([[(edged[i : i + 3, j : j + 3] * kernel).sum() for j in (0, 2)] for i in (0, 2)])
    norm = unit.norm
    y = (y - norm.running_mean.item()) / math.sqrt(norm.running_var.item() + 1e-5)
    y = y * norm.weight.item() + norm.bias.item()
    expected = y / (1 + np.exp(-y))
    with torch.no_grad():
        actual = unit(torch.from_numpy(x).float()[None, None])[0, 0]
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-5)


def test_running_statistics_by_hand() -> None:
    norm = BatchNorm2d(1)
    x = torch.tensor([1.0, 2.0, 3.0, 6.0]).view(1, 1, 2, 2)
    norm(x)
    assert norm.running_mean.item() == pytest.approx(0.1 * 3.0)  # momentum 0.1 from 0
    assert norm.running_var.item() == pytest.approx(0.9 * 1.0 + 0.1 * 14 / 3)  # unbiased variance, from 1


def test_batch_norm_keeps_no_counter_and_loads_strictly() -> None:
    norm = BatchNorm2d(4)
    state = norm.state_dict()
    assert list(state) == ["weight", "bias", "running_mean", "running_var"]
    BatchNorm2d(4).load_state_dict(state)
    BatchNorm2d(4).load_state_dict(dict(state))  # a plain dictionary carries no version
    with pytest.raises(RuntimeError, match="running_var"):
        norm.load_state_dict({name: value for name, value in state.items() if name != "running_var"})


def slow_attention(module: Attention, x: np.ndarray) -> np.ndarray:
    """One image, head by head and query by query, from the formula."""

    def conv_norm(part: nn.Module, value: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return part(torch.from_numpy(value)[None])[0].numpy()

    channels, height, width = x.shape
    heads = max(1, channels // 64)
    head_dim = channels // heads
    key_dim = head_dim // 2
    qkv = conv_norm(module.qkv, x)
    q, k, v = np.split(qkv, [heads * key_dim, 2 * heads * key_dim])
    mixed = np.zeros_like(v).reshape(channels, -1)
    for h in range(heads):
        query = q[h * key_dim : (h + 1) * key_dim].reshape(key_dim, -1)
        key = k[h * key_dim : (h + 1) * key_dim].reshape(key_dim, -1)
        value = v[h * head_dim : (h + 1) * head_dim].reshape(head_dim, -1)
        for n in range(height * width):
            scores = np.array([query[:, n] @ key[:, other] for other in range(height * width)]) / math.sqrt(key_dim)
            weights = np.exp(scores - scores.max())
            mixed[h * head_dim : (h + 1) * head_dim, n] = value @ (weights / weights.sum())
    return conv_norm(module.project, mixed.reshape(v.shape) + conv_norm(module.position, v))


@pytest.mark.parametrize("channels", [16, 128])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_attention_against_a_loop(channels: int, memory_format: torch.memory_format) -> None:
    torch.manual_seed(0)
    module = randomized(Attention(channels)).double()
    x = torch.randn(2, channels, 3, 4, dtype=torch.float64)
    with torch.no_grad():
        actual = module.to(memory_format=memory_format)(x.contiguous(memory_format=memory_format))
    assert actual.is_contiguous(memory_format=memory_format)
    for image in range(2):
        np.testing.assert_allclose(actual[image].numpy(), slow_attention(module, x[image].numpy()), rtol=1e-10)


@pytest.mark.parametrize(
    "block", [SPPF(16), C2PSA(16, 2), C3k2(16, 16, 2, Bottleneck)], ids=lambda block: type(block).__name__
)
def test_blocks_keep_their_input_and_shape(block: nn.Module) -> None:
    x = torch.randn(2, 16, 8, 8)
    kept = x.clone()
    assert block(x).shape == x.shape
    assert torch.equal(x, kept)


def test_sppf_adds_its_input() -> None:
    block = SPPF(8)
    nn.init.zeros_(block.fuse.norm.weight)  # the fused part becomes SiLU(0) = 0
    x = torch.randn(1, 8, 4, 4)
    assert torch.equal(block(x), x)


def test_gradients_are_right() -> None:
    torch.manual_seed(0)
    block = nn.Sequential(C3k2(4, 4, 1, Bottleneck), Attention(4)).double()
    x = torch.randn(2, 4, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(block, x)
