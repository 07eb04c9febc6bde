from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lucid_yolo.optim.newton_schulz import newton_schulz


def slow(matrix: np.ndarray, steps: int) -> np.ndarray:
    """The iteration as written in arXiv 2502.16982, one matrix, float64."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.astype(np.float64) / (np.sqrt((matrix.astype(np.float64) ** 2).sum()) + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


@settings(deadline=None)
@given(
    seed=st.integers(0, 100),
    rows=st.integers(1, 20),
    extra=st.integers(0, 60),
    steps=st.integers(1, 6),
    gram_steps=st.integers(1, 3),
)
def test_against_a_loop(seed: int, rows: int, extra: int, steps: int, gram_steps: int) -> None:
    x = np.random.default_rng(seed).normal(size=(3, rows, rows + extra)).astype(np.float32)
    actual = newton_schulz(torch.from_numpy(x), steps=steps, gram_steps=gram_steps).numpy()
    for i in range(3):
        np.testing.assert_allclose(actual[i], slow(x[i], steps), atol=2e-4)


@pytest.mark.parametrize("gram_steps", [1, 3])
@pytest.mark.parametrize("smallest", [1e-2, 1e-5])
def test_ill_conditioned_matrices(gram_steps: int, smallest: float) -> None:
    rng = np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.normal(size=(n, 32)))[0] for n in (32, 288))
    x = (u * np.geomspace(1, smallest, 32)) @ v.T
    actual = newton_schulz(torch.from_numpy(x).float()[None], steps=5, gram_steps=gram_steps)[0].numpy()
    expected = slow(x, 5)
    assert np.linalg.norm(actual - expected) < 2e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize("gram_steps", [1, 3])
def test_singular_values_come_near_one_and_vectors_stay(gram_steps: int) -> None:
    x = torch.randn(4, 24, 96, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = newton_schulz(x, steps=5, gram_steps=gram_steps)
    values = torch.linalg.svdvals(y)
    assert values.min() > 0.65
    assert values.max() < 1.25
    u, _, vh = torch.linalg.svd(x, full_matrices=False)
    torch.testing.assert_close(u.mT @ y @ vh.mT, torch.diag_embed((u.mT @ y @ vh.mT).diagonal(dim1=1, dim2=2)))


def test_zero_stays_zero_and_padding_changes_nothing() -> None:
    x = torch.randn(2, 5, 9, dtype=torch.float64)
    larger = x.new_zeros(3, 8, 16)
    larger[:2, :5, :9] = x
    y = newton_schulz(larger, steps=5)
    torch.testing.assert_close(y[:2, :5, :9], newton_schulz(x, steps=5), rtol=1e-12, atol=1e-14)
    assert y[:2, 5:].abs().sum() == y[:2, :, 9:].abs().sum() == y[2].abs().sum() == 0


def test_a_column_permutation_passes_through() -> None:
    x = torch.randn(1, 6, 18, dtype=torch.float64)
    order = torch.randperm(18)
    torch.testing.assert_close(newton_schulz(x[:, :, order], steps=5), newton_schulz(x, steps=5)[:, :, order])


def test_autocast_does_not_lower_the_precision() -> None:
    x = torch.randn(1, 16, 48)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = newton_schulz(x, steps=5)
    assert torch.equal(y, newton_schulz(x, steps=5))
