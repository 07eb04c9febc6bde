"""The kernels of max pools in Triton's interpreter, and the pitch of maps they read; compiled: ``tests/gpu``."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lucid_yolo.perf.kernels.rows import row_pitch
from tests.checkout import run_python


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed here")
def test_they_equal_torch_in_float64() -> None:
    done = run_python("-m", "tests.perf.kernels.interpreted_max_pool")
    assert done.returncode == 0, done.stderr
    checks = ("shapes", "types", "places", "specials", "slices", "orders", "sums", "examples", "blocks", "modes")
    assert done.stdout.splitlines() == [f"{check}: ok" for check in checks]


def made(*shape: int) -> torch.Tensor:
    return torch.rand(shape).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("x", "pitch"),
    [
        (made(2, 6, 3, 4), 6),
        (made(2, 6, 3, 4)[:, 1:5], 6),
        (torch.cat([made(2, 6, 3, 4)] * 4, dim=1)[:, 6:12], 24),
        (torch.rand(2, 1, 3, 4), 1),  # of one channel: both orders are the same
        (torch.rand(2, 6, 1, 1), 6),
        (made(1, 6, 3, 4)[:, :, 1:], 6),  # of one picture: the rows still follow each other
        (torch.rand(2, 6, 3, 4), None),
        (made(2, 6, 3, 4)[:, ::2], None),
        (made(2, 6, 3, 4)[:, :, 1:], None),
        (made(2, 6, 3, 4)[:, :, :, 1:], None),
        (made(4, 6, 3, 4)[::2], None),
        (made(2, 6, 3, 4).transpose(2, 3), None),
        (torch.ones(1).expand(2, 6, 3, 4), None),
    ],
)
def test_the_pitch_of_a_map(x: torch.Tensor, pitch: int | None) -> None:
    assert row_pitch(x) == pitch


@given(shape=st.tuples(*(st.integers(1, 4) for _ in range(4))), begin=st.integers(0, 3), more=st.integers(0, 3))
def test_a_map_is_found_by_its_pitch(shape: tuple[int, int, int, int], begin: int, more: int) -> None:
    batch, channels, height, width = shape
    whole = torch.arange(batch * height * width * (begin + channels + more)).view(batch, height, width, -1)
    x = whole.permute(0, 3, 1, 2)[:, begin : begin + channels]
    pitch = row_pitch(x)
    assert pitch is not None
    rows = x.permute(0, 2, 3, 1).reshape(-1, channels)
    assert all(int(rows[n, c]) == begin + n * pitch + c for n in range(len(rows)) for c in range(channels))
