"""The colour transform in torch: what the workers give, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lucid_yolo.ops import colour_torch
from lucid_yolo.ops.colour_torch import colour_and_scale
from tests.ops.colours import GAINS, as_batch, every_colour, from_workers, spread_colours


def test_all_colours_equal_the_workers():
    for planes in every_colour():
        images, gains = as_batch(planes, GAINS[:3])
        found = colour_and_scale(images, gains, dtype=torch.float32)
        assert torch.equal(found, from_workers(images, gains))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_any_gains_and_any_precision_equal_the_workers(dtype):
    images, gains = as_batch(spread_colours(52), GAINS)
    found = colour_and_scale(images, gains, dtype=dtype)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found, from_workers(images, gains).to(dtype))


def test_gains_of_one_keep_the_bytes_and_others_next_to_them_do_not():
    images, gains = as_batch(spread_colours(16), GAINS[[5, 4]])
    bytes_again = (colour_and_scale(images, gains, dtype=torch.float32) * 255).round().to(torch.uint8)
    assert torch.equal(bytes_again[0], images[0])
    assert not torch.equal(bytes_again[1], images[1])


@pytest.mark.parametrize("pixels", [1, 20 * 20, 2 * 20 * 20, 10**9])
def test_chunks_make_no_difference(monkeypatch, pixels):
    generator = np.random.default_rng(0)
    images = torch.from_numpy(generator.integers(0, 256, (5, 20, 20, 3), dtype=np.uint8)).permute(0, 3, 1, 2)
    gains = torch.from_numpy(generator.uniform(0, 2, (5, 3)).astype(np.float32))
    monkeypatch.setattr(colour_torch, "_CHUNK", pixels)
    assert torch.equal(colour_and_scale(images, gains, dtype=torch.float32), from_workers(images, gains))


def test_nothing_depends_on_values():
    """Meta tensors have none: a read on the host or a shape from data would raise."""
    images = torch.empty(4, 32, 32, 3, dtype=torch.uint8, device="meta").permute(0, 3, 1, 2)
    found = colour_and_scale(images, torch.empty(4, 3, device="meta"), dtype=torch.bfloat16)
    assert (found.shape, found.dtype) == ((4, 3, 32, 32), torch.bfloat16)
