"""RealNVP (arXiv 1605.08803): a density on the plane that is learned, and can be evaluated exactly."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

HIDDEN = 64
COUPLINGS = 6  # each coordinate is moved by every other one


class Coupling(nn.Module):
    """Scales and shifts one coordinate by functions of the other: ``z = x * exp(tanh(s)) + t``.

    The bound of the scale keeps a step of the optimizer from blowing up the density. The last layer starts at zero,
    the coupling as the identity.

    Args:
        moved: coordinate that moves, 0 or 1.
    """

    def __init__(self, moved: int) -> None:
        super().__init__()
        self.moved = moved
        self.net = nn.Sequential(
            nn.Linear(1, HIDDEN),
            nn.LeakyReLU(inplace=True),
            nn.Linear(HIDDEN, HIDDEN),
            nn.LeakyReLU(inplace=True),
            nn.Linear(HIDDEN, 2),
        )
        last = self.net[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, moving: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        """Move a coordinate towards the base density.

        Args:
            moving: (M, 1) coordinate that moves.
            given: (M, 1) the other one.

        Returns:
            (M, 1) moved coordinate and (M, 1) log-derivative.
        """
        log_scale, shift = self._parameters_at(given)
        return torch.addcmul(shift, moving, log_scale.exp()), log_scale

    def inverse(self, moved: Tensor, given: Tensor) -> Tensor:
        """Undo ``forward``, (M, 1)."""
        log_scale, shift = self._parameters_at(given)
        return (moved - shift) * (-log_scale).exp()

    def _parameters_at(self, given: Tensor) -> tuple[Tensor, Tensor]:
        raw, shift = self.net(given).chunk(2, -1)
        return raw.tanh(), shift


class RealNVP(nn.Module):
    """Six couplings that turn points of the density into points of a standard normal one.

    A point costs about 3 KiB of memory from the forward to the backward pass in float32.
    """

    def __init__(self) -> None:
        super().__init__()
        self.couplings = nn.ModuleList(Coupling(i % 2) for i in range(COUPLINGS))

    def encode(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Map points to the base density.

        Args:
            points: (M, 2).

        Returns:
            (M, 2) mapped points and (M,) log-determinants of the map.
        """
        axes = list(points.chunk(2, -1))
        log_determinant = torch.zeros_like(axes[0])
        for coupling in self.couplings:
            assert isinstance(coupling, Coupling)
            axes[coupling.moved], log_scale = coupling(axes[coupling.moved], axes[1 - coupling.moved])
            log_determinant = log_determinant + log_scale
        return torch.cat(axes, -1), log_determinant.squeeze(-1)

    def decode(self, mapped: Tensor) -> Tensor:
        """Undo ``encode``: (M, 2) points of the base density to those of this one."""
        axes = list(mapped.chunk(2, -1))
        for coupling in reversed(self.couplings):
            assert isinstance(coupling, Coupling)
            axes[coupling.moved] = coupling.inverse(axes[coupling.moved], axes[1 - coupling.moved])
        return torch.cat(axes, -1)

    def forward(self, points: Tensor) -> Tensor:
        """Log-density of (M, 2) points: (M,)."""
        mapped, log_determinant = self.encode(points)
        return log_determinant - mapped.square().sum(-1) / 2 - math.log(2 * math.pi)
