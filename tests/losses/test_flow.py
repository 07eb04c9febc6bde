"""The flow against autograd's Jacobian, its own inverse, and a density that it is to learn."""

from __future__ import annotations

import math

import pytest
import torch

from lucid_yolo.losses.flow import RealNVP


def make_flow(seed: int, dtype: torch.dtype = torch.float64) -> RealNVP:
    """A flow that is far from the identity, which it starts as."""
    generator = torch.Generator().manual_seed(seed)
    flow = RealNVP().to(dtype)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=dtype))
            parameter.mul_(0.8 if parameter.ndim == 1 else 1.2 / parameter.shape[1] ** 0.5)
    return flow


def draw(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2


@pytest.mark.parametrize("seed", [0, 1])
def test_inverse_undoes_the_map(seed: int) -> None:
    flow, points = make_flow(seed), draw(64)
    mapped, _ = flow.encode(points)
    assert (mapped - points).abs().max() > 0.5
    torch.testing.assert_close(flow.decode(mapped), points, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("seed", [0, 1])
def test_density_is_the_base_density_times_the_determinant_of_the_jacobian(seed: int) -> None:
    flow, points = make_flow(seed), draw(16)
    mapped, found = flow.encode(points)
    base = torch.distributions.Normal(torch.zeros(2, dtype=torch.float64), 1.0).log_prob(mapped).sum(1)
    for i, point in enumerate(points):
        jacobian = torch.autograd.functional.jacobian(lambda p: flow.encode(p[None])[0][0], point)
        expected = torch.linalg.det(jacobian).abs().log().item()
        assert found[i].item() == pytest.approx(expected, abs=1e-6)
        assert flow(points)[i].item() == pytest.approx(base[i].item() + expected, abs=1e-6)


def test_starts_as_a_standard_normal_density() -> None:
    points = torch.tensor([[0.0, 0.0], [1.0, -2.0]])
    expected = [-math.log(2 * math.pi), -math.log(2 * math.pi) - 2.5]
    assert RealNVP()(points).tolist() == pytest.approx(expected)


def test_log_scale_is_bounded_whatever_the_weights_are() -> None:
    flow = RealNVP()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.fill_(30.0)
    _, log_determinant = flow.encode(torch.tensor([[0.1, 0.2], [-3.0, 0.5]]))
    assert (log_determinant.abs() <= 6).all()


def test_learns_a_density_and_every_parameter_takes_part() -> None:
    torch.manual_seed(0)
    flow = RealNVP()
    generator = torch.Generator().manual_seed(0)
    radius = 0.3 * torch.randn(512, generator=generator)
    points = torch.stack((radius, radius.square() * 4 + 0.05 * torch.randn(512, generator=generator)), 1)
    optimizer = torch.optim.Adam(flow.parameters(), lr=5e-3)
    losses = []
    for _ in range(60):
        loss = -flow(points).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    # A normal density of the best mean and spread, independent in x and y, is the best that no flow can do better than.
    plain = torch.distributions.Normal(points.mean(0), points.std(0))
    assert losses[-1] < -plain.log_prob(points).sum(1).mean().item()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in flow.parameters())


def test_gradients_equal_numeric_ones() -> None:
    flow, points = make_flow(3), draw(5).requires_grad_()
    assert torch.autograd.gradcheck(flow, points)
