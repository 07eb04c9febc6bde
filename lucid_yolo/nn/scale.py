"""Compound scaling of the network's widths and depths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from lucid_yolo.config.schema import ModelConfig


@dataclass(frozen=True)
class Scale:
    """One variant of the family (scale table of arXiv 2602.14582).

    Attributes:
        variant: name, for messages.
        depth: multiplier of block repeats.
        width: multiplier of channels.
        max_channels: ceiling of the unscaled channels.
    """

    variant: str
    depth: float
    width: float
    max_channels: int

    @classmethod
    def from_config(cls, config: ModelConfig) -> Self:
        """Take the scale out of a model's configuration."""
        return cls(config.variant, config.depth, config.width, config.max_channels)

    def channels(self, base: int) -> int:
        """Scaled number of channels of a layer that has ``base`` of them at width 1."""
        return int(min(base, self.max_channels) * self.width)

    @property
    def repeats(self) -> int:
        """Inner units of a repeated block."""
        return max(1, round(2 * self.depth))
